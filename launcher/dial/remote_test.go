package dial_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/launcher/dial"
)

// Hosts do not check what ssh brings them, so it has to be what was read.
func TestReadBinary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gorun")
	write := func(name, text string) {
		t.Helper()
		must.Do(t, os.WriteFile(name, []byte(text), 0o700))
	}
	write(path, "one")
	b, err := dial.ReadBinary(path, "Linux x86_64")()
	const sha = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed" // of "one"
	if err != nil || b.SHA256 != sha || b.Size != 3 || b.Platform != "Linux x86_64" {
		t.Fatalf("got %+v, %v", b, err)
	}
	in, err := b.Open()
	must.Do(t, err)
	defer in.Close()
	if text, err := io.ReadAll(in); string(text) != "one" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}

	write(path+".new", "two")
	must.Do(t, os.Rename(path+".new", path))
	const replaced = "was replaced after gorun had begun: start gorun again"
	if _, err := b.Open(); err == nil || !strings.Contains(err.Error(), replaced) {
		t.Errorf("replaced by another file: %v", err)
	}
	b, err = dial.ReadBinary(path, "")()
	must.Do(t, err)
	write(path, "three")
	if _, err := b.Open(); err == nil || !strings.Contains(err.Error(), replaced) {
		t.Errorf("written anew: %v", err)
	}

	held, err := dial.HoldBinary([]byte("one"), "Linux x86_64")()
	if err != nil || held.SHA256 != sha || held.Size != 3 || held.Platform != "Linux x86_64" {
		t.Fatalf("of memory: %+v, %v", held, err)
	}
	for range 2 { // for two hosts
		in, err := held.Open()
		must.Do(t, err)
		if text, err := io.ReadAll(in); string(text) != "one" || err != nil {
			t.Errorf("of memory: got %q, %v", text, err)
		}
	}
}
