// Package ship finds the files of a user's program on the launcher's machine, and reads them for hosts that lack them.
package ship

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gorun/rendezvous/wire"
)

const (
	// mostFiles and MostBytes bound what a job sends.
	mostFiles = 50_000
	MostBytes = 2 << 30
	// mostNotes is how many files are named that are not sent.
	mostNotes = 3
)

// ignoreFile has lines like those of .gitignore. A line "!NAME" names a file that is sent although it may be secret.
const ignoreFile = ".gorunignore"

// never are files that are not sent, and secret those that are only if they are named. Both are patterns of their last names.
var (
	never  = []string{".git", "__pycache__", "*.pyc"}
	secret = []string{".env", ".env.*", ".netrc", ".pypirc", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.pem", "*.key", "*.p12", "*.pfx"}
)

// Worktree returns the directory of the git worktree that a directory is in, or the directory itself.
func Worktree(ctx context.Context, dir string) string {
	out, err := git(ctx, dir, "rev-parse", "--show-toplevel")
	if top := strings.TrimSuffix(string(out), "\n"); err == nil && filepath.IsAbs(top) {
		return top
	}
	return dir
}

// Collect finds the files of a directory, but for those that git ignores or .gorunignore names, environments of Python, and what
// may be secret. The notes are for the user: a line for each file that is not sent although nobody has excluded it.
func Collect(ctx context.Context, root string) (tree *wire.Tree, notes []string, err error) {
	c := collection{root: root, tree: &wire.Tree{Root: root}}
	if c.ignored, err = ignored(ctx, root); err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, ignoreFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for line := range strings.Lines(string(text)) {
		if name, is := strings.CutPrefix(strings.TrimSpace(line), "!"); is {
			c.named = append(c.named, name)
		}
	}
	if err := filepath.WalkDir(root, c.visit); err != nil {
		return nil, nil, err
	}
	if n := len(c.notes); n > mostNotes {
		c.notes = append(c.notes[:mostNotes-1], fmt.Sprintf("%d more files are not sent", n-mostNotes+1))
	}
	for i := range c.tree.Files {
		if f := &c.tree.Files[i]; f.Link == "" {
			if f.Hash, err = hash(filepath.Join(root, f.Path)); err != nil {
				return nil, nil, fmt.Errorf("%w: leave it out by a line of %s", err, ignoreFile)
			}
		}
	}
	return c.tree, c.notes, nil
}

type collection struct {
	root    string
	tree    *wire.Tree
	bytes   int64
	largest wire.TreeFile
	ignored map[string]bool
	named   []string
	notes   []string
}

func (c *collection) visit(name string, entry fs.DirEntry, err error) error {
	if err != nil {
		return fmt.Errorf("%w: leave it out by a line of %s", err, ignoreFile)
	}
	below, err := filepath.Rel(c.root, name)
	if err != nil || below == "." {
		return err
	}
	skip := error(nil)
	if entry.IsDir() {
		skip = fs.SkipDir
	}
	switch {
	case c.ignored[below], matches(never, entry.Name()), entry.IsDir() && environment(name):
		return skip
	case matches(secret, entry.Name()) && !slices.Contains(c.named, below) && !slices.Contains(c.named, entry.Name()):
		c.notes = append(c.notes, fmt.Sprintf("%s may be secret, and is not sent: a line !%s in %s has it sent", below, below, ignoreFile))
		return skip
	case entry.IsDir():
		return nil
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	f := wire.TreeFile{Path: below, Size: info.Size(), Exec: info.Mode()&0o111 != 0}
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		if f.Link, err = os.Readlink(name); err != nil {
			return err
		}
		f.Size, f.Exec = 0, false
		if _, err := os.Stat(name); err != nil {
			c.notes = append(c.notes, fmt.Sprintf("%s leads to %s, which is not there", below, f.Link))
		}
	case !mode.IsRegular():
		c.notes = append(c.notes, fmt.Sprintf("%s is no regular file, and is not sent", below))
		return nil
	}
	c.tree.Files = append(c.tree.Files, f)
	if c.bytes += f.Size; f.Size > c.largest.Size {
		c.largest = f
	}
	if len(c.tree.Files) > mostFiles {
		return fmt.Errorf("%s has more than %d files: leave some out by lines of %s", c.root, mostFiles, ignoreFile)
	}
	if c.bytes > MostBytes {
		return fmt.Errorf("%s has more than %d GB, such as %s with %.1f GB: leave it out by a line of %s",
			c.root, MostBytes>>30, c.largest.Path, float64(c.largest.Size)/(1<<30), ignoreFile)
	}
	return nil
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, name); return ok })
}

// environment reports whether a directory is an environment of Python, by venv or conda.
func environment(dir string) bool {
	_, venv := os.Stat(filepath.Join(dir, "pyvenv.cfg"))
	_, conda := os.Stat(filepath.Join(dir, "conda-meta"))
	return venv == nil || conda == nil
}

// ignored returns what git ignores in a directory, and what .gorunignore says. Only git knows what the lines of these files mean.
func ignored(ctx context.Context, root string) (map[string]bool, error) {
	var where []string
	if _, err := exec.LookPath("git"); err != nil {
		return nil, without(root)
	}
	if _, err := git(ctx, root, "rev-parse", "--show-toplevel"); err != nil {
		scratch, err := os.MkdirTemp("", "gorun-git")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(scratch)
		if _, err := git(ctx, scratch, "init", "--quiet", "--bare"); err != nil {
			return nil, err
		}
		where = []string{"--git-dir=" + scratch, "--work-tree=" + root}
	}
	all := map[string]bool{}
	for _, which := range [][]string{{"--others", "--exclude-standard"}, {"--others", "--cached", "--exclude-per-directory=" + ignoreFile}} {
		out, err := git(ctx, root, slices.Concat(where, []string{"ls-files", "-z", "--ignored", "--directory"}, which)...)
		if err != nil {
			return nil, err
		}
		for name := range bytes.SplitSeq(out, []byte{0}) {
			all[strings.TrimSuffix(string(name), "/")] = true
		}
	}
	delete(all, "")
	return all, nil
}

// without is the error for a directory whose files only git could read, nil if it has none.
func without(root string) error {
	for _, name := range []string{".gitignore", ignoreFile} {
		if _, err := os.Stat(filepath.Join(root, name)); err == nil {
			return fmt.Errorf("git is not installed here, which reads %s", filepath.Join(root, name))
		}
	}
	return nil
}

func git(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, err
}

func hash(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	h := sha256.New()
	_, err = io.Copy(h, file)
	return h.Sum(nil), err
}
