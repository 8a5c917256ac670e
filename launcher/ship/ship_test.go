package ship

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
)

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

func names(t *wire.Tree) string {
	var all []string
	for _, f := range t.Files {
		all = append(all, f.Path)
	}
	return strings.Join(all, " ")
}

// TestCollect: in a worktree and outside of one, what git ignores stays, as do environments, caches and secrets that nobody has named.
func TestCollect(t *testing.T) {
	files := map[string]string{
		"train.py": "", "lib/a.py": "", "lib/__pycache__/a.pyc": "", "data/x": "", "data/kept": "", "tracked.log": "", "other.log": "", "notes/n": "",
		"env/pyvenv.cfg": "", "env/lib/p.py": "", "conda/conda-meta/history": "", ".env": "", "lib/id_rsa": "", "tls.key": "",
		".gitignore": "data/*\n!data/kept\n*.log\n/named.log\nbuilt/\n", ".gorunignore": "/notes/\n!tls.key\n!named.log\n!built/x.so\n",
		"named.log": "", "built/x.so": "", "built/x.o": "", "sub/.gitignore": "y\n", "sub/x": "", "sub/y": "",
	}
	for _, inside := range []bool{false, true} {
		root := t.TempDir()
		write(t, root, files)
		want := ".gitignore .gorunignore built/x.so data/kept lib/a.py named.log sub/.gitignore sub/x tls.key train.py"
		if inside {
			script := "git init -q . && git init -q sub && git add -f tracked.log && git add train.py notes"
			if out, err := exec.CommandContext(t.Context(), "sh", "-c", "cd "+root+" && "+script).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			want = strings.Replace(want, "train.py", "tracked.log train.py", 1)
		}
		tree, notes, err := Collect(t.Context(), root)
		must.Do(t, err)
		if got := names(tree); got != want {
			t.Errorf("in a worktree %v: %s\nwant %s", inside, got, want)
		}
		must.Report(t, tree.Check())
		if len(notes) != 2 || !strings.Contains(strings.Join(notes, "\n"), "lib/id_rsa may be secret") {
			t.Errorf("notes %q", notes)
		}
		if got := Worktree(t.Context(), filepath.Join(root, "lib")); inside == (got == "") {
			t.Errorf("in a worktree %v: %s", inside, got)
		}
	}
}

// TestCollectIgnored: a directory that its worktree ignores is sent if it is named, by its own rules.
func TestCollectIgnored(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{".gitignore": "built/\n", "built/run.py": "", "built/run.log": "", "built/.gitignore": "*.log\n"})
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := names(mustCollect(t, filepath.Join(root, "built"))); got != ".gitignore run.py" {
		t.Error(got)
	}
}

// TestCollectBad: what cannot be sent is one line that says what to do.
func TestCollectBad(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"a": "1"})
	large := filepath.Join(root, "large.bin")
	f, err := os.Create(large)
	if err == nil {
		err = f.Truncate(5 << 30)
	}
	must.Do(t, err)
	f.Close()
	if _, _, err := Collect(t.Context(), root); err == nil || !strings.Contains(err.Error(), "large.bin with 5.0 GB: leave it out by a line of .gorunignore") {
		t.Errorf("5 GB: %v", err)
	}
	os.Remove(large)
	for range mostNotes + 2 {
		os.Symlink("nowhere", filepath.Join(root, "l"+strings.Repeat("x", len(names(mustCollect(t, root))))))
	}
	if _, notes, _ := Collect(t.Context(), root); len(notes) != mostNotes || !strings.Contains(notes[mostNotes-1], "3 more files") {
		t.Errorf("notes %q", notes)
	}
	if os.Geteuid() != 0 {
		os.Chmod(filepath.Join(root, "a"), 0)
		if _, _, err := Collect(t.Context(), root); err == nil || !strings.Contains(err.Error(), ".gorunignore") {
			t.Errorf("a file that cannot be read: %v", err)
		}
	}
}

func mustCollect(t *testing.T, root string) *wire.Tree {
	t.Helper()
	tree, _, err := Collect(t.Context(), root)
	must.Do(t, err)
	return tree
}

// TestOpen: files come one after the other, and one that became shorter is an error unless what was sent is kept.
func TestOpen(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"a": "one", "b": "", "c": "three"})
	b := New(mustCollect(t, root))
	all, err := io.ReadAll(b.Open([]int{2, 1, 0}))
	if err != nil || string(all) != "threeone" {
		t.Errorf("%q, %v", all, err)
	}
	write(t, root, map[string]string{"a": "o"})
	if _, err := io.ReadAll(b.Open([]int{0})); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("a file that became shorter: %v", err)
	}
	kept := filepath.Join(t.TempDir(), "kept")
	must.Do(t, os.WriteFile(kept, []byte("one"), 0o600))
	b.Kept = func(f wire.TreeFile) (*os.File, error) {
		if f.Path != "a" {
			return nil, os.ErrNotExist
		}
		return os.Open(kept)
	}
	if all, err := io.ReadAll(b.Open([]int{0, 2})); err != nil || string(all) != "onethree" {
		t.Errorf("of what is kept, and of the tree: %q, %v", all, err)
	}
}
