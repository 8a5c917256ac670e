//go:build unix

package proc

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFIFO: a FIFO as the program is refused before anything opens it, which would wait for a writer.
func TestFIFO(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := unix.Mkfifo(file, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := lookPath(file, nil, "/"); !errors.Is(err, errIrregular) {
		t.Errorf("lookPath: %v", err)
	}
}
