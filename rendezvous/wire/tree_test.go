package wire_test

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
)

func tree(paths ...string) *wire.Tree {
	t := &wire.Tree{Root: "/home/me/proj"}
	for _, p := range paths {
		t.Files = append(t.Files, wire.TreeFile{Path: p, Hash: make([]byte, sha256.Size)})
	}
	return t
}

// TestTreeIsPacked: a tree comes back as it was, in fewer bytes, and none as none. What is not packed is an error, as is a list without
// an end.
func TestTreeIsPacked(t *testing.T) {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("lib/python3.11/site-packages/package/module%d.py", i))
	}
	for _, sent := range []*wire.Python{{Name: "n", Tree: tree(names...)}, {Error: "no"}} {
		b, err := wire.Marshal(sent)
		must.Do(t, err)
		got, err := wire.Unmarshal(b)
		if err != nil || !reflect.DeepEqual(got, sent) || len(b) > 10_000 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		var read wire.Python
		text, err := json.Marshal(sent)
		if err = errors.Join(err, json.Unmarshal(text, &read)); err != nil || !reflect.DeepEqual(&read, sent) || len(text) > 15_000 {
			t.Errorf("%d bytes of JSON, %v", len(text), err)
		}
	}
	var zeros bytes.Buffer
	w, _ := flate.NewWriter(&zeros, flate.BestSpeed)
	w.Write([]byte("\x81\xa4root\xdb\xff\xff\xff\xff")) // a string of 4 GB
	io.CopyN(w, neverEnds{}, 200<<20)
	w.Close()
	for _, packed := range [][]byte{zeros.Bytes(), []byte("no deflate")} {
		text, err := msgpack.Marshal(map[string][]byte{"tree": packed})
		must.Do(t, err)
		if m, err := wire.Unmarshal(append([]byte{104}, text...)); err == nil {
			t.Errorf("%T of %d bytes", m, len(packed))
		}
	}
}

type neverEnds struct{}

func (neverEnds) Read(b []byte) (int, error) { return len(b), nil }

// TestTreeCheck: nothing leaves the tree, by its name or through a link.
func TestTreeCheck(t *testing.T) {
	must.Report(t, tree("a", "b/c", "b/d").Check())
	link := tree("a/b")
	link.Files = append(link.Files, wire.TreeFile{Path: "a", Link: "/etc"})
	short := tree("a")
	short.Files[0].Hash = nil
	negative := tree("a")
	negative.Files[0].Size = -1
	for name, bad := range map[string]*wire.Tree{
		"above": tree("../a"), "absolute": tree("/a"), "inside": tree("a/../../b"), "not clean": tree("a//b"), "itself": tree("."), "twice": tree("a", "a"),
		"through a link": link, "no hash": short, "negative": negative, "no root": {},
	} {
		if bad.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestTreeAt: programs find their files where the tree is on another host.
func TestTreeAt(t *testing.T) {
	for _, tc := range []struct{ dir, argv, wantDir, want string }{
		{"/home/me/proj", "python train.py a", "/c/t", "python train.py a"},
		{"/home/me/proj/sub", "python ../train.py /home/me/proj/sub/x", "/c/t/sub", "python ../train.py /c/t/sub/x"},
		{"/home/me", "python proj/train.py proj/none", "/home/me", "python /c/t/train.py proj/none"},
		{"/tmp", "/home/me/proj/train.py /home/me/project", "/tmp", "/c/t/train.py /home/me/project"},
		{"/home/me/proj", "/home/me/proj/venv/bin/python train.py --out /home/me/proj/runs /home/me/proj", "/c/t", "/home/me/proj/venv/bin/python train.py --out /home/me/proj/runs /c/t"},
		{"/home/me/proj/runs", "python ../train.py", "/c/t/runs", "python ../train.py"},
		{"/tmp", "python --conf=/home/me/proj/sub/x --conf=none X=/home/me/proj/train.py", "/tmp", "python --conf=/c/t/sub/x --conf=none X=/home/me/proj/train.py"},
	} {
		argv, dir := tree("train.py", "sub/x").At("/c/t", strings.Fields(tc.argv), tc.dir)
		env := tree("train.py", "sub/x").EnvAt("/c/t", []string{"A=/home/me/proj", "PYTHONPATH=/x:/home/me/proj/sub:"})
		if got := strings.Join(argv, " "); got != tc.want || dir != tc.wantDir || !slices.Equal(env, []string{"A=/home/me/proj", "PYTHONPATH=/x:/c/t/sub:"}) {
			t.Errorf("%s in %s: %s in %s with %q", tc.argv, tc.dir, got, dir, env)
		}
	}
}
