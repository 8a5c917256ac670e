package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gorun/contrib/must"

	"golang.org/x/sys/unix"
)

// TestAskNvidia calls an nvidia-smi that answers, one that fails, and none.
func TestAskNvidia(t *testing.T) {
	dir := t.TempDir()
	const script = "#!/bin/sh\n" +
		"case \"$*\" in\n" +
		"-q) printf '\\nGPU 00000000:3B:00.0\\n    Persistence Mode : Disabled\\n';;\n" +
		"'topo -p2p r') printf ' \\tGPU0\\tGPU1\\t\\n GPU0\\tX\\tOK\\t\\n GPU1\\tOK\\tX\\t\\n';;\n" +
		"*) exit 2;;\nesac\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	states, peers, silent := askNvidia(t.Context())
	if silent != "" || len(states) != 1 || states[0].Persistence != "Disabled" || peers.Pairs != 1 || len(peers.Refused) != 0 {
		t.Errorf("got %+v and %+v", states, peers)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\nexit 15\n"), 0o755))
	if states, _, silent := askNvidia(t.Context()); len(states) != 0 || silent != nvidiaSilent {
		t.Errorf("of a driver that does not answer: %+v, %q", states, silent)
	}
	t.Setenv("PATH", t.TempDir())
	if states, _, silent := askNvidia(t.Context()); len(states) != 0 || silent != "" {
		t.Errorf("without nvidia-smi: %+v, %q", states, silent)
	}
}

// TestResolve: a name that neither files nor DNS know, and glibc does.
func TestResolve(t *testing.T) {
	dir := t.TempDir()
	const script = "#!/bin/sh\n[ \"$*\" = 'ahosts r2box.invalid' ] || exit 2\n" +
		"printf '10.0.0.7       STREAM r2box.invalid\\n10.0.0.7       DGRAM\\nfd00::7        STREAM\\n'\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "getent"), []byte(script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for name, want := range map[string][]string{"r2box.invalid": {"10.0.0.7", "fd00::7"}, "none.invalid": nil, "127.0.0.1": {"127.0.0.1"}} {
		if got := resolve(t.Context(), name); !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestRooms: what is not there has no room, and blocks have the size that the file system counts in.
func TestRooms(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "shm")
	if r := roomIn(missing); r != (Room{Dir: missing}) {
		t.Errorf("a directory that is missing: %+v", r)
	}
	if r := roomIn(missing, t.TempDir()); r.Dir != missing || r.Size == 0 {
		t.Errorf("a directory that will be made: %+v", r)
	}
	fuse := unix.Statfs_t{Bsize: 1 << 20, Frsize: 4096, Blocks: 1000, Bavail: 500, Files: 9, Ffree: 9}
	if r := roomOf("/data", fuse); r != (Room{Dir: "/data", Size: 4096000, Free: 2048000}) {
		t.Errorf("%+v", r)
	}
	fuse.Ffree, fuse.Frsize = 0, 0
	if r := roomOf("/data", fuse); r != (Room{Dir: "/data", Size: 1000 << 20}) {
		t.Errorf("without inodes: %+v", r)
	}
}

func TestLocksFreely(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tsh\nCapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n": true,  // root
		"Name:\tsh\nCapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\n": false, // root of a container
		"Name:\tsh\nCapEff:\t0000000000000000\n":                            false, // a user
		"":                                                                  false,
	} {
		if got := locksFreely(status); got != want {
			t.Errorf("%q: %v", status, got)
		}
	}
}
