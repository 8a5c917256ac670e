package worker

import (
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
)

// TestShipped: a resident daemon gets the program of a detached job, and the environment for the Python that is here, and has its launcher
// run in them; a host that lacks them can carry the job on all the same.
func TestShipped(t *testing.T) {
	file := func(path, text string) wire.TreeFile {
		hash := sha256.Sum256([]byte(text))
		return wire.TreeFile{Path: path, Size: int64(len(text)), Hash: hash[:]}
	}
	tree := func(root string, files ...wire.TreeFile) *wire.Tree { return &wire.Tree{Root: root, Files: files} }
	home := []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	s := Shipped{Env: func() []string { return home }}
	program, packages := tree("/home/me/proj", file("train.py", "print()"), file("state", "sent")), tree("/cache/env", file("lib/x.py", "X = 1"))
	r := &wire.Detach{Tree: program, Python: "python3", Dir: "/home/me/proj/runs", Env: []string{"PYTHONPATH=/home/me/proj"},
		Args:     []string{"gorun", "--ship", "--hostfile", "/home/me/proj/state", "python3", "train.py"},
		Programs: []wire.SentProgram{{Argv: []string{"python3", "/home/me/proj/train.py"}, Env: []string{"PYTHONPATH=/lib:/home/me/proj"}, Dir: "/home/me/proj"}}}
	in, asked, failed := make(chan wire.Message), make(chan wire.Message), make(chan error, 1)
	from, to, err := os.Pipe()
	must.Do(t, err)
	go func() {
		defer close(asked)
		for read := wire.NewReader(from); ; {
			m, err := read.Read()
			if err != nil {
				return
			}
			switch m.(type) {
			case *wire.Alive, *wire.MoreFiles:
			default:
				asked <- m
			}
		}
	}()
	go func() {
		failed <- s.Fetch(t.Context(), r, in, wire.NewWriter(to))
		to.Close()
	}()
	for m := range asked {
		switch m := m.(type) {
		case *wire.AskPython:
			answer := &wire.Python{Name: packages.Name()}
			if m.Whole {
				answer.Tree = packages
			}
			in <- answer
		case *wire.AskFiles:
			text := "print()sent"
			if m.Python {
				text = "X = 1"
			}
			in <- &wire.Files{Data: []byte(text), Size: len(text)}
		}
	}
	must.Do(t, <-failed)

	here, err := s.Place(r)
	must.Do(t, err)
	root := here.Tree.Root
	text, _ := os.ReadFile(filepath.Join(root, "train.py"))
	if info, err := os.Stat(here.Dir); string(text) != "print()" || err != nil || !info.IsDir() || here.Dir != filepath.Join(root, "runs") {
		t.Errorf("in %s is %q, it runs in %s, %v", root, text, here.Dir, err)
	}
	p := here.Programs[0]
	if here.Args[3] != root+"/state" || here.Env[0] != "PYTHONPATH="+root || p.Argv[1] != root+"/train.py" || p.Env[0] != "PYTHONPATH=/lib:"+root || p.Dir != root {
		t.Errorf("%q with %q, runs %+v", here.Args, here.Env, p)
	}
	if _, err := os.Stat(filepath.Join(here.Packages, "lib/x.py")); err != nil || !strings.HasPrefix(here.Platform.Version, "3.") {
		t.Errorf("the environment for %+v: %v", here.Platform, err)
	}

	// Ranks replace a file, and remove one: a launcher that takes over leaves the tree to them, and so does a host of the job that joins
	// and shares their home.
	store, err := openStore(home)
	must.Do(t, err)
	defer store.Close()
	ended := make(chan wire.Message)
	close(ended) // there is nobody to ask
	job := source{store: store, in: ended, out: wire.NewWriter(io.Discard)}
	if dir, err := job.tree(t.Context(), program, "7"); err != nil || filepath.Base(dir) != filepath.Base(root) {
		t.Errorf("made in %s, %v", dir, err)
	}
	must.Do(t, os.Remove(filepath.Join(root, "train.py")))
	must.Do(t, os.WriteFile(filepath.Join(root, "new"), []byte("theirs"), 0o600))
	must.Do(t, os.Rename(filepath.Join(root, "new"), filepath.Join(root, "state")))
	if again, err := s.Place(here); err != nil || again.Tree.Root != root || !slices.Equal(again.Args, here.Args) {
		t.Errorf("where its ranks run: %+v, %v", again, err)
	}
	_, err = job.tree(t.Context(), program, "7")
	left, _ := filepath.Glob(filepath.Join(root, "*"))
	if text, _ := os.ReadFile(filepath.Join(root, "state")); err != nil || string(text) != "theirs" || len(left) != 3 { // with the directory runs, and the jobs
		t.Errorf("in the tree is %q, with %q, %v", left, text, err)
	}
	_, err = job.tree(t.Context(), program, "8") // another one wants what was sent
	if text, _ := os.ReadFile(filepath.Join(root, "state")); err != nil || string(text) != "sent" {
		t.Errorf("another job has %q, %v", text, err)
	}
	partial := tree(program.Root, slices.Concat(program.Files, []wire.TreeFile{file("more", "more")})...)
	if _, err := job.tree(t.Context(), partial, "7"); err == nil || store.Made(partial.Name(), "") {
		t.Errorf("a tree of which a file never came is made: %v", err)
	}
	if _, err := s.Place(&wire.Detach{Tree: partial, Dir: "/"}); err == nil || store.Made(partial.Name(), "") {
		t.Errorf("such a tree is placed: %v", err)
	}

	home = []string{"HOME=" + t.TempDir()}
	there, err := s.Place(here) // as a successor's daemon
	if err == nil || !strings.Contains(err.Error(), "the environment of Python is not here: ") || there.Tree.Root == root || there.Programs[0].Argv[1] != there.Tree.Root+"/train.py" || there.Dir != there.Tree.Root+"/runs" || there.Tree.Name() != program.Name() {
		t.Errorf("%+v, %v", there, err)
	}
	plain := &wire.Detach{Args: []string{"gorun"}}
	if got, err := s.Place(plain); err != nil || got != plain || s.Fetch(t.Context(), plain, nil, nil) != nil {
		t.Errorf("a job that brings nothing: %+v, %v", got, err)
	}
}
