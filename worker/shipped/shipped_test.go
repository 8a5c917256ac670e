package shipped

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/rendezvous/keytls"
	"gorun/rendezvous/wire"
	"gorun/worker/cached"
)

func newStore(t *testing.T) *Store {
	t.Helper()
	home := t.TempDir()
	s, err := Open(func(name string) string { return map[string]string{"HOME": home}[name] })
	must.Do(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func treeOf(contents ...string) *wire.Tree {
	t := &wire.Tree{Root: "/home/me"}
	for i, c := range contents {
		hash := sha256.Sum256([]byte(c))
		t.Files = append(t.Files, wire.TreeFile{Path: "d/" + string(rune('a'+i)), Size: int64(len(c)), Hash: hash[:], Exec: i == 1})
	}
	t.Files = append(t.Files, wire.TreeFile{Path: "link", Link: "d/a"})
	return t
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// TestContents: what has another hash, or is cut short, is not kept; a tree is mended; equal contents are asked for once.
func TestContents(t *testing.T) {
	s, tree := newStore(t), treeOf("one", "two", "one", "")
	missing := s.Missing(tree)
	if len(missing) != 3 {
		t.Fatalf("missing %v, want three of four files", missing)
	}
	for _, sent := range []string{"onetwx", "onetw"} {
		if err := s.Take(tree, missing, strings.NewReader(sent)); err == nil || len(s.Missing(tree)) != 2 {
			t.Errorf("%q: %v, missing %v", sent, err, s.Missing(tree))
		}
		os.RemoveAll(filepath.Join(s.dir, cached.Files))
		os.Mkdir(filepath.Join(s.dir, cached.Files), 0o700)
	}
	must.Do(t, s.Take(tree, missing, strings.NewReader("onetwo")))
	dir, _, err := s.Build(tree, "")
	must.Do(t, err)
	if read(t, dir, "d/a")+read(t, dir, "d/b")+read(t, dir, "d/c")+read(t, dir, "link") != "onetwooneone" {
		t.Error("the tree has other contents")
	}
	if info, err := os.Stat(filepath.Join(dir, "d/b")); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("a program: %v, %v", info, err)
	}
	for _, name := range []string{"d/a", "link"} {
		os.Remove(filepath.Join(dir, name))
		os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600)
	}
	os.WriteFile(filepath.Join(dir, "d/result"), []byte("kept"), 0o600)
	os.Chmod(filepath.Join(dir, "d/b"), 0o755)
	os.WriteFile(filepath.Join(dir, "d/b"), []byte("TWO"), 0o755) // through the link to the contents
	if missing = s.Missing(tree); len(missing) != 1 {
		t.Fatalf("missing %v after one was changed in place", missing)
	}
	must.Do(t, s.Take(tree, missing, strings.NewReader("two")))
	_, changed, err := s.Build(tree, "")
	must.Do(t, err)
	if len(changed) != 3 || !s.Made(tree.Name(), "") || read(t, dir, "d/a.changed") != "mine" || read(t, dir, "d/b.changed") != "TWO" {
		t.Errorf("what was changed is not kept: %q", changed)
	}
	if got := read(t, dir, "d/a") + read(t, dir, "d/b") + read(t, dir, "link") + read(t, dir, "d/result"); got != "onetwoonekept" {
		t.Errorf("the tree is not mended: %q", got)
	}
}

// TestMakers: of jobs that make one tree at the same time each is noted, and so are the latest of very many.
func TestMakers(t *testing.T) {
	s, tree := newStore(t), treeOf()
	build := func(job string) {
		if _, _, err := s.Build(tree, job); err != nil {
			t.Error(err)
		}
	}
	must.Do(t, s.Begin(tree))
	build("")
	var building sync.WaitGroup
	for job := range 50 {
		building.Go(func() { build(strconv.Itoa(100 + job)) })
	}
	building.Wait()
	for job := range 50 {
		if !s.Made(tree.Name(), strconv.Itoa(100+job)) {
			t.Errorf("job %d is not noted", 100+job)
		}
	}
	build(strings.Repeat("x", 4096))
	build("last")
	if info, err := os.Stat(filepath.Join(s.Dir(tree.Name()), makers)); err != nil || info.Size() > 4096 || !info.ModTime().Equal(cached.Sent) || !s.Made(tree.Name(), "last") {
		t.Errorf("%+v, %v", info, err)
	}
}

// conversation is a daemon's with its launcher.
type conversation struct {
	in    chan wire.Message
	asked chan wire.Message
	err   chan error
}

func converse(t *testing.T, s *Store, tree *wire.Tree, key []byte) *conversation {
	return begin(func(in <-chan wire.Message, out *wire.Writer) error { return s.Get(t.Context(), tree, key, in, out) })
}

// begin has a daemon do something for which it talks to its launcher.
func begin(do func(in <-chan wire.Message, out *wire.Writer) error) *conversation {
	c := &conversation{make(chan wire.Message), make(chan wire.Message, 10), make(chan error, 1)}
	r, w := io.Pipe()
	go func() { c.err <- do(c.in, wire.NewWriter(w)); w.Close() }()
	go func() {
		for in := wire.NewReader(r); ; {
			m, err := in.Read()
			if err != nil {
				return
			}
			if _, alive := m.(*wire.Alive); !alive {
				c.asked <- m
			}
		}
	}()
	return c
}

// TestGet: files come in pieces from the launcher, packed or not, or from a host; where that fails, the launcher is asked again.
func TestGet(t *testing.T) {
	key := bytes.Repeat([]byte{1}, keytls.SeedSize)
	if err := <-converse(t, newStore(t), treeOf("", ""), key).err; err != nil { // nothing to ask for
		t.Error(err)
	}
	long := strings.Repeat("x", 5000)
	tree := treeOf("one", "two", long)
	first := newStore(t)
	c := converse(t, first, tree, key)
	if ask := (<-c.asked).(*wire.AskFiles); len(ask.Missing) != 3 || ask.Not != "" {
		t.Fatalf("asked %+v", ask)
	}
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.BestSpeed)
	io.WriteString(w, "wo"+long)
	w.Close()
	c.in <- &wire.Files{Data: []byte("onet"), Size: 4}
	c.in <- &wire.Files{Data: packed.Bytes(), Size: 2 + len(long)}
	must.Do(t, <-c.err)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- first.Serve(ctx, l, tree, "", key) }()
	second := newStore(t)
	c = converse(t, second, tree, key)
	<-c.asked
	c.in <- &wire.Files{At: l.Addr().String()}
	if err := <-c.err; err != nil || len(second.Missing(tree)) != 0 {
		t.Errorf("from a host: %v", err)
	}

	link := &wire.Tree{Files: []wire.TreeFile{{Path: "l", Link: "a"}}}
	ours, theirs := net.Pipe()
	go wire.NewWriter(theirs).Write(&wire.AskFiles{Missing: []int{0}})
	if err := first.give(ours, link, nil); err == nil {
		t.Error("it gives a link")
	}

	third := newStore(t)
	c = converse(t, third, tree, bytes.Repeat([]byte{2}, keytls.SeedSize)) // who has another key gets nothing
	<-c.asked
	c.in <- &wire.Files{At: l.Addr().String()}
	if ask := (<-c.asked).(*wire.AskFiles); ask.Not != l.Addr().String() || len(ask.Missing) != 3 {
		t.Errorf("asked %+v after a host refused", ask)
	}
	c.in <- &wire.Stop{}
	if err := <-c.err; !errors.Is(err, errOver) {
		t.Errorf("stopped: %v", err)
	}
	cancel()
	if err := <-over; err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}

	for _, bad := range []*wire.Files{{Size: -1}, {Size: mostPiece + 1, Data: []byte("x")}, {Size: 1, Data: []byte("xx")}, {Size: 9, Data: []byte("x")}, {Error: "gone"}} {
		c = converse(t, newStore(t), tree, key)
		<-c.asked
		c.in <- bad
		if err := <-c.err; err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}

// TestGetPython: an environment comes once, from the launcher or from a host, and begins with the Python of each host; one whose job
// was killed amid is not taken for whole.
func TestGetPython(t *testing.T) {
	key, tree := bytes.Repeat([]byte{1}, keytls.SeedSize), treeOf("one", "two")
	s := newStore(t)
	get := func(s *Store, base string) (c *conversation, dir chan string) {
		dir = make(chan string, 1)
		return begin(func(in <-chan wire.Message, out *wire.Writer) error {
			at, err := s.GetPython(t.Context(), wire.AskPython{Platform: wire.Platform{Version: "3.11"}}, base, key, in, out)
			dir <- at
			return err
		}), dir
	}
	answer := func(c *conversation, whole bool) {
		t.Helper()
		if ask, is := (<-c.asked).(*wire.AskPython); !is || ask.Whole != whole || ask.Platform.Version != "3.11" {
			t.Errorf("asked %+v, want whole %v", ask, whole)
		}
		reply := &wire.Python{Name: tree.Name()}
		if whole {
			reply.Tree = tree
		}
		c.in <- reply
	}
	killed, _ := get(s, "/usr/bin/python3.11")
	answer(killed, false)
	answer(killed, true)
	<-killed.asked // for files
	killed.in <- &wire.Stop{}
	if err := <-killed.err; !errors.Is(err, errOver) {
		t.Errorf("stopped: %v", err)
	}
	second, _ := get(s, "/usr/bin/python3.11")
	answer(second, false)
	answer(second, true)
	if ask := (<-second.asked).(*wire.AskFiles); !ask.Python || len(ask.Missing) != 2 {
		t.Errorf("asked %+v", ask)
	}
	second.in <- &wire.Files{Data: []byte("onetwo"), Size: 6}
	must.Do(t, <-second.err)

	var at string
	for _, base := range []string{"/usr/bin/python3.11", "/opt/bin/python3"} { // which may be another one by then
		c, dir := get(s, base)
		answer(c, false)
		at = <-dir
		must.Do(t, <-c.err)
		link, _ := os.Readlink(filepath.Join(at, "bin/python"))
		if read(t, at, "d/a") != "one" || link != base || !strings.Contains(read(t, at, "pyvenv.cfg"), "home = "+filepath.Dir(base)+"\n") {
			t.Errorf("begins with %s, %s", link, read(t, at, "pyvenv.cfg"))
		}
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- s.Serve(ctx, l, nil, at, key) }() // it was here before
	other := newStore(t)
	c, _ := get(other, "/usr/bin/python3.11")
	answer(c, false)
	answer(c, true)
	<-c.asked
	c.in <- &wire.Files{At: l.Addr().String()}
	if err := <-c.err; err != nil || len(other.Missing(tree)) != 0 {
		t.Errorf("from a host: %v", err)
	}
	cancel()
	<-over
	if got := ReadPython(at); got == nil || got.Name() != tree.Name() || got.Root != at || ReadPython(filepath.Dir(at)) != nil {
		t.Errorf("the environment has %+v", got)
	}

	for _, bad := range []*wire.Python{{Error: "no", Hint: "do"}, {Name: "../x"}, {}} {
		c, _ := get(newStore(t), "/usr/bin/python3")
		<-c.asked
		c.in <- bad
		if err := <-c.err; err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
	c, _ = get(newStore(t), "/usr/bin/python3")
	<-c.asked
	c.in <- &wire.Python{Name: strings.Repeat("0", 64)}
	<-c.asked
	c.in <- &wire.Python{Name: strings.Repeat("0", 64), Tree: tree}
	if err := <-c.err; err == nil || !strings.Contains(err.Error(), "another environment") {
		t.Errorf("another tree: %v", err)
	}
}

// TestCopy: where there are no hard links, jobs may make the same file of a tree at once: none sees a part of it.
func TestCopy(t *testing.T) {
	s, long := newStore(t), strings.Repeat("x", 1<<20)
	tree := treeOf(long)
	must.Do(t, s.Take(tree, []int{0}, strings.NewReader(long)))
	ended := make(chan error)
	for range 4 {
		go func() {
			err := s.copy(tree.Files[0], "trees/a")
			if here, statErr := s.root.Lstat("trees/a"); err == nil && (statErr != nil || !untouched(here, tree.Files[0])) {
				err = errors.New("a part of it was seen")
			}
			ended <- err
		}()
	}
	for range 4 {
		must.Do(t, <-ended)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, cached.Trees, "*")); len(left) != 1 || read(t, s.dir, "trees/a") != long {
		t.Errorf("left %q", left)
	}
}

// TestBegin: jobs on hosts that share a home begin an environment at once. One that cannot have its links has no settings, which would
// tell that it is whole.
func TestBegin(t *testing.T) {
	s := newStore(t)
	for n := range 20 {
		at := path.Join(cached.Trees, strconv.Itoa(n))
		must.Do(t, s.root.MkdirAll(path.Join(at, "bin"), 0o700))
		ended := make(chan error)
		for range 4 {
			go func() { ended <- s.begin(at, "/usr/bin/python3.11", "3.11") }()
		}
		for range 4 {
			must.Do(t, <-ended)
		}
		if left, _ := filepath.Glob(filepath.Join(s.dir, at, "bin", "*")); len(left) != 3 {
			t.Errorf("left %q", left)
		}
	}
	before, err := s.root.Lstat("trees/0/bin/python3")
	must.Do(t, err)
	must.Do(t, s.begin("trees/0", "/opt/python3.11", "3.11"))
	if after, _ := s.root.Lstat("trees/0/bin/python3"); !os.SameFile(before, after) {
		t.Error("a link that says the same was made again")
	}
	must.Do(t, s.root.RemoveAll("trees/0/bin/python"))
	must.Do(t, s.root.MkdirAll("trees/0/bin/python/x", 0o700))
	if err := s.begin("trees/0", "/usr/bin/python3.11", "3.11"); err == nil {
		t.Error("begins without a link")
	}
	if _, err := s.root.Lstat("trees/0/pyvenv.cfg"); err == nil {
		t.Error("has settings without a link")
	}
}

// TestTreesAreCleaned: trees that nobody uses go, but for those that ranks have written into, and contents without a tree.
func TestTreesAreCleaned(t *testing.T) {
	s := newStore(t)
	tree, written := treeOf("one", "two"), treeOf("three", "two")
	var dirs []string
	for _, tree := range []*wire.Tree{tree, written} {
		missing := s.Missing(tree)
		text := map[int]string{2: "onetwo", 1: "three"}[len(missing)]
		must.Do(t, s.Take(tree, missing, strings.NewReader(text)))
		dir, _, err := s.Build(tree, "")
		must.Do(t, err)
		dirs = append(dirs, dir)
	}
	os.WriteFile(filepath.Join(dirs[1], "result"), []byte("r"), 0o600)
	old := time.Now().Add(-48 * time.Hour)
	for _, dir := range append(dirs, filepath.Join(s.dir, cached.Files)) {
		os.Chtimes(dir, old, old)
	}
	found := cached.Clean([]string{s.dir}, time.Hour, time.Now(), false)
	if len(found) != 2 || !found[0].Tree || found[0].Written == found[1].Written || found[0].Removed != !found[0].Written {
		t.Errorf("found %+v", found)
	}
	cached.Clean([]string{s.dir}, 0, time.Now(), true)
	left, _ := filepath.Glob(filepath.Join(s.dir, "*", "*", "*"))
	if len(left) != 0 {
		t.Errorf("left %q", left)
	}
}
