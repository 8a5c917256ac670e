// Package packed opens files of the archive that is part of gorun's executable, in memory: a copy on disk would outlive a
// job that is killed.
package packed

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// errMissing is for a gorun that is built without a file.
var errMissing = errors.New("this gorun was built without it")

// Open returns a file of the archive in an executable. It can be read, mapped and executed, and processes of the same user
// find it by Path as long as it is open.
func Open(exe, name string) (*os.File, error) {
	archive, err := zip.OpenReader(exe)
	if errors.Is(err, zip.ErrFormat) {
		return nil, errMissing
	}
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	in, err := archive.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errMissing
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	fd, err := unix.MemfdCreate(path.Base(name), unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // kernels before 6.3 do not know MFD_EXEC
		fd, err = unix.MemfdCreate(path.Base(name), unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	// It is given out through a descriptor for reading only: a file that is open for writing cannot be executed.
	writing := os.NewFile(uintptr(fd), name)
	defer writing.Close()
	if _, err := io.Copy(writing, in); err != nil {
		return nil, err
	}
	return os.Open(Path(writing))
}

// Path names an open file for other processes of the same user.
func Path(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }
