package shipped

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"time"

	"gorun/rendezvous/wire"
	"gorun/worker/cached"
)

// An environment of Python is a tree to which the host adds the list of its files and the Python that it has. settings is added last,
// so it tells that the rest is there.
const (
	settings = "pyvenv.cfg"
	listFile = ".gorun-files"
)

var isName = regexp.MustCompile(`^[0-9a-f]{64}$`)

// PythonError is why a host gets no environment, and what to do.
type PythonError struct{ Text, Hint string }

func (e *PythonError) Error() string { return e.Text }

// NextStep returns what to do.
func (e *PythonError) NextStep() string { return e.Hint }

// GetPython gets the environment for a Python, base, from the launcher or from a host that the launcher names, unless it is here.
// It returns where the environment is.
func (s *Store) GetPython(ctx context.Context, ask wire.AskPython, base string, key []byte, in <-chan wire.Message, out *wire.Writer) (dir string, err error) {
	sign := time.NewTicker(signInterval)
	defer sign.Stop()
	l := &launcher{over: ctx.Done(), in: in, out: out, sign: sign.C}
	answer, err := l.askPython(ask)
	if err != nil {
		return "", err
	}
	at := path.Join(cached.Trees, answer.Name)
	_, unmade := s.root.Lstat(path.Join(at, settings))
	_, unlisted := s.root.Lstat(path.Join(at, listFile))
	if unmade != nil || unlisted != nil {
		ask.Whole = true
		if answer, err = l.askPython(ask); err != nil {
			return "", err
		}
		t := answer.Tree
		if t == nil || t.Check() != nil || path.Join(cached.Trees, t.Name()) != at {
			return "", errors.New("the launcher sent another environment than it named")
		}
		if err := s.get(ctx, t, true, key, l); err != nil {
			return "", err
		}
		if err := l.meanwhile(ctx, func(context.Context) error { _, _, err := s.Build(t, ""); return err }); err != nil {
			return "", err
		}
		text, err := wire.Marshal(answer)
		if err == nil {
			err = s.write(path.Join(at, listFile), text)
		}
		if err != nil {
			return "", fmt.Errorf("list the environment: %w", err)
		}
	}
	if err := s.begin(at, base, ask.Platform.Version); err != nil {
		return "", fmt.Errorf("make the environment: %w", err)
	}
	return filepath.Join(s.dir, at), s.Mark(answer.Name)
}

// ReadPython returns the files of an environment that GetPython has made in a directory, nil if there is none.
func ReadPython(dir string) *wire.Tree {
	text, _ := os.ReadFile(filepath.Join(dir, listFile))
	m, err := wire.Unmarshal(text)
	p, is := m.(*wire.Python)
	if err != nil || !is || p.Tree == nil || p.Tree.Name() != filepath.Base(dir) {
		return nil
	}
	p.Tree.Root = dir
	return p.Tree
}

// askPython asks which environment a Python gets.
func (l *launcher) askPython(ask wire.AskPython) (*wire.Python, error) {
	if err := l.out.Write(&ask); err != nil {
		return nil, err
	}
	m, err := l.next(nil)
	answer, is := m.(*wire.Python)
	switch {
	case err != nil:
		return nil, err
	case !is:
		return nil, fmt.Errorf("the launcher sent %T", m)
	case answer.Error != "":
		return nil, &PythonError{answer.Error, answer.Hint}
	case !isName.MatchString(answer.Name):
		return nil, errors.New("the launcher sent an environment without a name")
	}
	return answer, nil
}

// begin has an environment begin with a Python of this host, which may be another one than last time. Jobs on hosts that share a home
// may do so at once: each name has a whole link at any time.
func (s *Store) begin(at, base, version string) error {
	file := path.Join(at, settings)
	text := fmt.Sprintf("home = %s\nexecutable = %s\ninclude-system-site-packages = false\nversion = %s\n", filepath.Dir(base), base, version)
	there, err := s.root.ReadFile(file)
	if err == nil && string(there) == text {
		return nil
	}
	if err == nil { // the rest is of another Python until it is written again
		if err := s.root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := s.root.MkdirAll(path.Join(at, "bin"), 0o700); err != nil {
		return err
	}
	for name, to := range map[string]string{"python": base, "python3": "python", "python" + version: "python"} {
		link := path.Join(at, "bin", name)
		if there, _ := s.root.Readlink(link); there == to {
			continue
		}
		if err := s.rename(link, func(partial string) error { return s.root.Symlink(to, partial) }); err != nil {
			return err
		}
	}
	return s.write(file, []byte(text))
}

// write adds a file to a tree, as whole as what was sent.
func (s *Store) write(name string, text []byte) error {
	return s.rename(name, func(partial string) error {
		return errors.Join(s.root.WriteFile(partial, text, 0o600), s.root.Chtimes(partial, cached.Sent, cached.Sent))
	})
}

// rename has do make something under a name of its own, and gives it its name then.
func (s *Store) rename(name string, do func(partial string) error) error {
	partial := name + "." + rand.Text()
	err := do(partial)
	if err == nil {
		err = s.root.Rename(partial, name)
	}
	if err != nil {
		s.root.Remove(partial)
	}
	return err
}
