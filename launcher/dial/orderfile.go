package dial

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// writeOrder writes the order of a host whose program has no standard input to a new file, which only the user may
// read, in a directory that hosts share. Who could write there could give the host another launcher.
func writeOrder(dir string, order []byte) (file string, err error) {
	if dir == "" {
		return "", errors.New("there is no cache directory: set HOME or XDG_CACHE_HOME")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || !ok || int(stat.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s: not a directory that you alone may write to", dir)
	}
	f, err := os.CreateTemp(dir, "step-*") // a new file, for the user alone
	if err != nil {
		return "", err
	}
	_, err = f.Write(order)
	if err := errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}
