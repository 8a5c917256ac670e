// Package shipped keeps the files of programs that launchers have sent to this host, and gets those that are missing.
//
// Contents lie in the directory files of the user's cache, named by their hash, and trees in the directory trees, made of
// hard links to them. So a tree of which the host has most costs little, and a file is sent once. What ranks write into a
// tree stays there.
package shipped

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"gorun/rendezvous/wire"
	"gorun/worker/cached"
)

// Store is a directory of contents and trees. Others may not look into it.
type Store struct {
	root *os.Root
	dir  string
}

// Open opens the store in the first of the user's directories that has one or takes one.
func Open(getenv func(name string) string) (s *Store, err error) {
	_, err = cached.Open(getenv, func(dir string) error {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return err
		}
		for _, name := range []string{cached.Files, cached.Trees} {
			if err := root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				root.Close()
				return err
			}
		}
		s = &Store{root, dir}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open cache of files: %w", err)
	}
	return s, nil
}

// Close closes the store.
func (s *Store) Close() error { return s.root.Close() }

// contents returns the name of what a file holds, in the store.
func contents(f wire.TreeFile) string {
	hash := hex.EncodeToString(f.Hash)
	if f.Exec {
		hash += "x"
	}
	return path.Join(cached.Files, hash[:2], hash)
}

// has returns what the store has of a file, nil if it lacks it or if somebody has written to it since.
func (s *Store) has(f wire.TreeFile) fs.FileInfo {
	info, err := s.root.Lstat(contents(f))
	if err != nil || !info.Mode().IsRegular() || info.Size() != f.Size || !info.ModTime().Equal(cached.Sent) {
		return nil
	}
	return info
}

// Missing returns the files of a tree whose contents are not here. Of equal ones it returns one.
func (s *Store) Missing(t *wire.Tree) (missing []int) {
	asked := map[string]bool{}
	for i, f := range t.Files {
		if f.Link == "" && !asked[contents(f)] && s.has(f) == nil {
			asked[contents(f)] = true
			missing = append(missing, i)
		}
	}
	return missing
}

// Take reads files of a tree, one after the other, and keeps them, up to one that has another hash or is cut short.
func (s *Store) Take(t *wire.Tree, files []int, from io.Reader) error {
	for _, i := range files {
		if err := s.take(t.Files[i], from); err != nil {
			return fmt.Errorf("get %s: %w", t.Files[i].Path, err)
		}
	}
	return nil
}

func (s *Store) take(f wire.TreeFile, from io.Reader) error {
	name := contents(f)
	if err := s.root.Mkdir(path.Dir(name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return &localError{err}
	}
	partial := name + "." + rand.Text() // hosts may share a home
	to, err := s.root.OpenFile(partial, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return &localError{err}
	}
	defer s.root.Remove(partial) // unless it has its name by then
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(local{to}, hash), io.LimitReader(from, f.Size))
	if err := to.Close(); err != nil {
		return &localError{err}
	}
	if err != nil {
		return err
	}
	if n < f.Size {
		return io.ErrUnexpectedEOF
	}
	if !bytes.Equal(hash.Sum(nil), f.Hash) {
		return errors.New("it has changed since the job was started")
	}
	mode := fs.FileMode(0o444)
	if f.Exec {
		mode = 0o555
	}
	if s.has(f) != nil {
		return nil // another job has got it meanwhile
	}
	if err := errors.Join(s.root.Chmod(partial, mode), s.root.Chtimes(partial, cached.Sent, cached.Sent), s.root.Rename(partial, name)); err != nil {
		return &localError{err}
	}
	return nil
}

// localError is a fault of this host's cache, whoever sends.
type localError struct{ error }

func (e *localError) Unwrap() error { return e.error }

// local writes to this host's cache.
type local struct{ io.Writer }

func (l local) Write(b []byte) (int, error) {
	n, err := l.Writer.Write(b)
	if err != nil {
		err = &localError{err}
	}
	return n, err
}

// Open returns what a file holds.
func (s *Store) Open(f wire.TreeFile) (*os.File, error) { return s.root.Open(contents(f)) }

// Begin notes that a tree is about to be used, and its contents with it, so that nobody removes them.
func (s *Store) Begin(t *wire.Tree) error {
	now := time.Now()
	return errors.Join(s.root.MkdirAll(path.Join(cached.Trees, t.Name()), 0o700), s.root.Chtimes(cached.Files, now, now), s.Mark(t.Name()))
}

// Mark notes that a tree is used now.
func (s *Store) Mark(name string) error {
	now := time.Now()
	return s.root.Chtimes(path.Join(cached.Trees, name), now, now)
}

// Tend marks trees as used until ctx ends, and first removes others that nobody has used for a while.
func (s *Store) Tend(ctx context.Context, names []string) {
	cached.LimitTrees(s.dir, time.Now())
	var dirs []string
	for _, name := range names {
		dirs = append(dirs, s.Dir(name))
	}
	cached.Keep(ctx, dirs...)
}

// makers is the file of a tree that names the jobs it was made for, a line each. It is written last, so it tells that the rest is there.
const makers = ".gorun-jobs"

// Made reports whether a tree is here that was made for a job, "" for any. Ranks may have changed it since.
func (s *Store) Made(name, job string) bool {
	text, err := s.root.ReadFile(path.Join(cached.Trees, name, makers))
	return err == nil && bytes.Contains(text, []byte(job+"\n"))
}

// Build makes a tree for a job of contents that are all here, and returns its path. Files that former jobs have changed are kept beside
// the right ones, with another name: Build returns their paths.
func (s *Store) Build(t *wire.Tree, job string) (dir string, changed []string, err error) {
	treeName := t.Name()
	at := path.Join(cached.Trees, treeName)
	dir = s.Dir(treeName)
	before, err := s.root.ReadFile(path.Join(at, makers))
	whole := err == nil
	for _, f := range t.Files {
		name := path.Join(at, f.Path)
		if s.isPlaced(name, f) {
			continue
		}
		if whole { // until it is mended
			whole = s.root.Remove(path.Join(at, makers)) != nil
		}
		differs, err := s.place(name, f)
		if err != nil {
			return dir, changed, fmt.Errorf("make %s: %w", f.Path, err)
		}
		if differs {
			changed = append(changed, filepath.Join(s.dir, name+aside))
		}
	}
	const most = 4096
	note, lines := s.append, []byte(job+"\n")
	if len(before) > most { // the latest jobs stay
		note, lines = s.write, append(before[len(before)-most/2:], lines...)
	} else if !whole {
		lines = append(before, lines...)
	}
	return dir, changed, errors.Join(note(path.Join(at, makers), lines), s.Mark(treeName))
}

// append adds lines to a file of a tree, as others may do at the same time, on hosts that share a home.
func (s *Store) append(name string, lines []byte) error {
	f, err := s.root.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(lines)
	err = errors.Join(err, f.Close())
	if wrong := s.root.Chtimes(name, cached.Sent, cached.Sent); !errors.Is(wrong, fs.ErrNotExist) { // another job mends the tree
		err = errors.Join(err, wrong)
	}
	return err
}

// Dir returns the path of a tree.
func (s *Store) Dir(name string) string { return filepath.Join(s.dir, cached.Trees, name) }

// aside ends the name of a file that a former job has changed.
const aside = ".changed"

// isPlaced reports whether a file of a tree is in its place.
func (s *Store) isPlaced(at string, f wire.TreeFile) bool {
	if f.Link != "" {
		to, err := s.root.Readlink(at)
		return err == nil && to == f.Link
	}
	here, err := s.root.Lstat(at)
	return err == nil && (os.SameFile(here, s.has(f)) || untouched(here, f))
}

// place puts a file of a tree in its place, and reports whether something else was there, which it keeps.
func (s *Store) place(at string, f wire.TreeFile) (differs bool, err error) {
	here, err := s.root.Lstat(at)
	if err != nil {
		if err := s.root.MkdirAll(path.Dir(at), 0o700); err != nil {
			return false, err
		}
	} else {
		s.root.RemoveAll(at + aside)
		if err := s.root.Rename(at, at+aside); err != nil {
			return false, err
		}
	}
	if f.Link != "" {
		err = s.root.Symlink(f.Link, at)
	} else if err = s.root.Link(contents(f), at); err != nil && !errors.Is(err, fs.ErrExist) { // not every file system has links
		err = s.copy(f, at)
	}
	if errors.Is(err, fs.ErrExist) { // another job makes the same tree
		err = nil
	}
	return here != nil, err
}

// untouched reports whether a file is what was placed, as a link or as a copy.
func untouched(here fs.FileInfo, f wire.TreeFile) bool {
	return here.Mode().IsRegular() && here.Size() == f.Size && here.ModTime().Equal(cached.Sent)
}

func (s *Store) copy(f wire.TreeFile, at string) error {
	from, err := s.Open(f)
	if err != nil {
		return err
	}
	defer from.Close()
	return s.rename(at, func(partial string) error {
		to, err := s.root.OpenFile(partial, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, from)
		return errors.Join(err, to.Close(), s.root.Chtimes(partial, cached.Sent, cached.Sent))
	})
}
