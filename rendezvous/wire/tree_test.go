package wire_test

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"

	"gorun/rendezvous/wire"
)

func tree(paths ...string) *wire.Tree {
	t := &wire.Tree{Root: "/home/me/proj"}
	for _, p := range paths {
		t.Files = append(t.Files, wire.TreeFile{Path: p, Hash: make([]byte, sha256.Size)})
	}
	return t
}

// TestTreeCheck: nothing leaves the tree, by its name or through a link.
func TestTreeCheck(t *testing.T) {
	if err := tree("a", "b/c", "b/d").Check(); err != nil {
		t.Error(err)
	}
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
	} {
		argv, dir := tree("train.py", "sub/x").At("/c/t", strings.Fields(tc.argv), tc.dir)
		env := tree("train.py", "sub/x").EnvAt("/c/t", []string{"A=/home/me/proj", "PYTHONPATH=/x:/home/me/proj/sub:"})
		if got := strings.Join(argv, " "); got != tc.want || dir != tc.wantDir || !slices.Equal(env, []string{"A=/home/me/proj", "PYTHONPATH=/x:/c/t/sub:"}) {
			t.Errorf("%s in %s: %s in %s with %q", tc.argv, tc.dir, got, dir, env)
		}
	}
}
