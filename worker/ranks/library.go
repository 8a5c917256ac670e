package ranks

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// libraryName is the native library in the archive that is appended to gorun.
const libraryName = "gorun/libgorun.so"

var errNoLibrary = errors.New("open native library: this gorun was built without it")

// library is the native library of gorun in memory that ranks load it from: a file would outlive a job that is killed.
type library struct{ file *os.File }

// openLibrary copies the library out of gorun's own executable.
func openLibrary(exe string) (l *library, err error) {
	archive, err := zip.OpenReader(exe)
	if errors.Is(err, zip.ErrFormat) {
		return nil, errNoLibrary
	}
	if err != nil {
		return nil, fmt.Errorf("open native library: %w", err)
	}
	defer archive.Close()
	in, err := archive.Open(libraryName)
	if err != nil {
		return nil, errNoLibrary
	}
	defer in.Close()
	fd, err := unix.MemfdCreate("libgorun.so", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // kernels before 6.3 do not know MFD_EXEC
		fd, err = unix.MemfdCreate("libgorun.so", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("open native library: %w", os.NewSyscallError("memfd_create", err))
	}
	file := os.NewFile(uintptr(fd), "libgorun.so")
	if _, err := io.Copy(file, in); err != nil {
		file.Close()
		return nil, fmt.Errorf("open native library: %w", err)
	}
	return &library{file}, nil
}

// path is where processes of the same user find the library as long as this daemon lives, "" if it has none.
func (l *library) path() string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), l.file.Fd())
}

func (l *library) close() {
	if l != nil {
		l.file.Close()
	}
}
