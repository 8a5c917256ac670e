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
	secret = []string{".env", ".env.*", ".envrc", ".netrc", ".pypirc", ".git-credentials", ".ssh", ".aws", ".gnupg", ".kube",
		"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.pem", "*.key", "*.p12", "*.pfx"}
)

// Worktree returns the directory of the git worktree that a directory is in, "" if there is none.
func Worktree(ctx context.Context, dir string) string {
	out, err := git(ctx, dir, "rev-parse", "--show-toplevel")
	if top := strings.TrimSuffix(string(out), "\n"); err == nil && filepath.IsAbs(top) {
		return top
	}
	return ""
}

// Collect finds the files of a directory, but for those that git ignores or .gorunignore names, environments of Python, and what
// may be secret. The notes are for the user: a line for each file that is not sent although nobody has excluded it.
func Collect(ctx context.Context, root string) (tree *wire.Tree, notes []string, err error) {
	c := collection{root: root, tree: &wire.Tree{Root: root}, ignored: map[string]bool{}}
	if err := c.ignore(ctx, root); err != nil {
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
	visit := func(name string, entry fs.DirEntry, err error) error { return c.visit(ctx, name, entry, err) }
	if err := filepath.WalkDir(root, visit); err != nil {
		return nil, nil, err
	}
	if n := len(c.notes); n > mostNotes {
		c.notes = append(c.notes[:mostNotes-1], fmt.Sprintf("%d more files are not sent", n-mostNotes+1))
	}
	for i := range c.tree.Files {
		if f := &c.tree.Files[i]; f.Link == "" {
			if f.Hash, err = Hash(filepath.Join(root, f.Path), f.Size); err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil, nil, fmt.Errorf("read %s: %w: leave it out by a line of %s", f.Path, err, ignoreFile)
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

func (c *collection) visit(ctx context.Context, name string, entry fs.DirEntry, err error) error {
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
	switch named := c.isNamed(below, entry.IsDir()); {
	case ctx.Err() != nil:
		return ctx.Err()
	case matches(never, entry.Name()), entry.IsDir() && environment(name), c.isIgnored(below) && !named:
		return skip
	case matches(secret, entry.Name()) && !named:
		c.notes = append(c.notes, fmt.Sprintf("%s may be secret, and is not sent: a line !%s in %s has it sent", below, below, ignoreFile))
		return skip
	case entry.IsDir():
		if _, err := os.Lstat(filepath.Join(name, ".git")); err == nil { // a submodule has rules of its own
			return c.ignore(ctx, name)
		}
		return nil
	}
	if entry.Type()&^fs.ModeSymlink != 0 {
		c.notes = append(c.notes, fmt.Sprintf("%s is no regular file, and is not sent", below))
		return nil
	}
	f, err := Entry(c.root, below, entry)
	if err != nil {
		return err
	}
	if _, err := os.Stat(name); err != nil && f.Link != "" {
		c.notes = append(c.notes, fmt.Sprintf("%s leads to %s, which is not there", below, f.Link))
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

// Entry describes a regular file or a link below a directory, but for its hash.
func Entry(root, below string, entry fs.DirEntry) (wire.TreeFile, error) {
	f := wire.TreeFile{Path: below}
	info, err := entry.Info()
	switch {
	case err != nil:
	case info.Mode()&fs.ModeSymlink != 0:
		f.Link, err = os.Readlink(filepath.Join(root, below))
	default:
		f.Size, f.Exec = info.Size(), info.Mode()&0o111 != 0
	}
	return f, err
}

// isNamed reports whether the user has named a file in .gorunignore, by its path or its last name, or something in a directory.
func (c *collection) isNamed(below string, dir bool) bool {
	return slices.ContainsFunc(c.named, func(name string) bool {
		return name == below || name == path.Base(below) || dir && strings.HasPrefix(name, below+"/")
	})
}

// isIgnored reports whether a file, or a directory that it is in, is ignored.
func (c *collection) isIgnored(below string) bool {
	for ; below != "."; below = path.Dir(below) {
		if c.ignored[below] {
			return true
		}
	}
	return false
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

// ignore notes what git ignores in a directory, and what .gorunignore says. Only git knows what the lines of these files mean.
func (c *collection) ignore(ctx context.Context, dir string) error {
	names, err := ignored(ctx, dir)
	for _, name := range names {
		below, relErr := filepath.Rel(c.root, filepath.Join(dir, name))
		c.ignored[below] = relErr == nil
	}
	return err
}

func ignored(ctx context.Context, root string) (names []string, err error) {
	var where []string
	if _, err := exec.LookPath("git"); err != nil {
		return nil, without(root)
	}
	_, outside := git(ctx, root, "rev-parse", "--show-toplevel")
	if _, err := git(ctx, root, "check-ignore", "--quiet", "."); outside != nil || err == nil { // of what is ignored itself git lists nothing
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
	for _, which := range [][]string{{"--others", "--exclude-standard"}, {"--others", "--cached", "--exclude-per-directory=" + ignoreFile}} {
		out, err := git(ctx, root, slices.Concat(where, []string{"ls-files", "-z", "--ignored", "--directory"}, which)...)
		if err != nil {
			return nil, err
		}
		for name := range bytes.SplitSeq(out, []byte{0}) {
			if len(name) > 0 {
				names = append(names, string(name))
			}
		}
	}
	return names, nil
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

// git runs git in a directory, whatever repository the environment names.
func git(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "env", append([]string{"-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "-u", "GIT_INDEX_FILE", "git"}, args...)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, err
}

// Hash returns the hash of so many bytes of a file: one that grows is sent as it was.
func Hash(name string, size int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	h := sha256.New()
	_, err = io.CopyN(h, file, size)
	return h.Sum(nil), err
}
