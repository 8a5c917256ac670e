package dial

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/must"
)

// TestOrderFile: an order is in a new file, for the user alone.
func TestOrderFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gorun", "steps")
	seen := map[string]bool{}
	for range 3 {
		file, err := writeOrder(dir, []byte("order\n"))
		must.Do(t, err)
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 || filepath.Dir(file) != dir || seen[file] {
			t.Errorf("%s: %v, %v", file, info, err)
		}
		if text, _ := os.ReadFile(file); string(text) != "order\n" {
			t.Errorf("got %q", text)
		}
		seen[file] = true
	}
}

// TestOrderFileIsRefused: no order is where others could read or replace it.
func TestOrderFileIsRefused(t *testing.T) {
	open := t.TempDir()
	must.Do(t, os.Chmod(open, 0o777))
	link := filepath.Join(t.TempDir(), "steps")
	must.Do(t, os.Symlink(t.TempDir(), link))
	others := "/usr"
	if os.Geteuid() == 0 {
		others = t.TempDir()
		must.Do(t, os.Chown(others, 12345, -1))
	}
	for dir, want := range map[string]string{
		"":     "there is no cache directory: set HOME or XDG_CACHE_HOME",
		open:   ": not a directory that you alone may write to",
		link:   ": not a directory that you alone may write to",
		others: ": not a directory that you alone may write to",
	} {
		if file, err := writeOrder(dir, []byte("order\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v", dir, file, err)
		}
	}
}
