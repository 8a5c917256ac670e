package doctor

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAskNvidia calls an nvidia-smi that answers, one that fails, and none.
func TestAskNvidia(t *testing.T) {
	dir := t.TempDir()
	const script = "#!/bin/sh\n" +
		"case \"$*\" in\n" +
		"-q) printf '\\nGPU 00000000:3B:00.0\\n    Persistence Mode : Disabled\\n';;\n" +
		"'topo -p2p r') printf ' \\tGPU0\\tGPU1\\t\\n GPU0\\tX\\tOK\\t\\n GPU1\\tOK\\tX\\t\\n';;\n" +
		"*) exit 2;;\nesac\n"
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	states, peers, silent := askNvidia(t.Context())
	if silent != "" || len(states) != 1 || states[0].Persistence != "Disabled" || peers.Pairs != 1 || len(peers.Refused) != 0 {
		t.Errorf("got %+v and %+v", states, peers)
	}
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\nexit 15\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if states, _, silent := askNvidia(t.Context()); len(states) != 0 || silent != nvidiaSilent {
		t.Errorf("of a driver that does not answer: %+v, %q", states, silent)
	}
	t.Setenv("PATH", t.TempDir())
	if states, _, silent := askNvidia(t.Context()); len(states) != 0 || silent != "" {
		t.Errorf("without nvidia-smi: %+v, %q", states, silent)
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
