package vmtools

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// errTaken means that another process holds the only registration of this machine.
var errTaken = errors.New("another job of the same user on this machine receives them")

// maxToken bounds what is read of a token's file.
const maxToken = 4 << 10

// token identifies a registration so that it can be ended. It is in a file that the registered process locks. The lock
// goes with its process; the file stays if that was killed.
type token struct {
	path string
	file *os.File // nil as long as it is not ours
	text string   // what is in it
}

// claim locks the file, unless it is locked already, and returns the token that a dead process left in it. It fails if
// another process has the lock. Where no file can be created or locked, the token is not kept.
func (t *token) claim() (former string, err error) {
	for t.path != "" && t.file == nil {
		file, err := t.open()
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			return "", errTaken
		case err != nil:
			t.path = ""
		case file != nil:
			t.file = file
			b, _ := io.ReadAll(io.LimitReader(file, maxToken))
			t.text, _, _ = strings.Cut(string(b), "\n")
			return t.text, nil
		}
	}
	return "", nil
}

// open returns the locked file, nil if another process has removed it meanwhile.
func (t *token) open() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(t.path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(t.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		return nil, err
	}
	ours, err := file.Stat()
	if there, missing := os.Stat(t.path); err != nil || missing != nil || !os.SameFile(ours, there) {
		file.Close()
		return nil, err
	}
	return file, nil
}

// save stores the token, or removes it. A full disk is treated as if none were kept.
func (t *token) save(text string) {
	if t.file == nil || text == t.text {
		return
	}
	t.text = text
	line := text + "\n"
	// Shorten the file afterwards: an old token stays valid up to its last byte.
	if n, err := t.file.WriteAt([]byte(line), 0); err == nil {
		t.file.Truncate(int64(n))
	}
}

// release unlocks the file, and removes it if it is empty.
func (t *token) release() {
	if t.file == nil {
		return
	}
	if t.text == "" {
		os.Remove(t.path)
	}
	t.file.Close()
}
