//go:build unix

package proc

import (
	"errors"
	"path/filepath"
	"testing"

	"gorun/contrib/must"

	"golang.org/x/sys/unix"
)

// TestFIFO: a FIFO as the program is refused before anything opens it, which would wait for a writer.
func TestFIFO(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	must.Do(t, unix.Mkfifo(file, 0o755))
	if _, err := lookPath(file, nil, "/"); !errors.Is(err, errIrregular) {
		t.Errorf("lookPath: %v", err)
	}
}
