//go:build linux

package lab

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// The namespaces that a host has for itself.
const hostNamespaces = unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// namespaceFile maps a namespace to its name under /proc/PID/ns, in the order in which to enter them: the
// mount namespace last, because it takes /proc away.
var namespaceFile = [...]struct {
	flag int
	name string
}{
	{unix.CLONE_NEWPID, "pid"},
	{unix.CLONE_NEWNET, "net"},
	{unix.CLONE_NEWUTS, "uts"},
	{unix.CLONE_NEWIPC, "ipc"},
	{unix.CLONE_NEWNS, "mnt"},
}

// enter calls f on a thread that has joined the namespaces (unix.CLONE_NEW… flags) of a process. A process
// that f starts begins there, and is still the caller's own child: killing and waiting work as always.
func enter(pid int, namespaces int, f func() error) error {
	return onOwnThread(func() error {
		var fds []int
		defer func() {
			for _, fd := range fds {
				unix.Close(fd)
			}
		}()
		for _, n := range namespaceFile {
			if namespaces&n.flag == 0 {
				continue
			}
			fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, n.name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("open %s namespace of process %d: %w", n.name, pid, err)
			}
			fds = append(fds, fd)
		}
		// Threads of a process share their root and working directory; one that changes its mount namespace may not.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare file system attributes: %w", err)
		}
		for _, fd := range fds {
			if err := unix.Setns(fd, 0); err != nil {
				return fmt.Errorf("enter namespaces of process %d: %w", pid, err)
			}
		}
		return f()
	})
}

// onOwnThread runs f on a thread that ends with it, so that f's changes to the thread do not persist. The
// process's first thread never ends, and /proc/self shows it, so f does not run there.
func onOwnThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			result <- onOwnThread(f) // on another thread, because this one is taken
			runtime.UnlockOSThread()
			return
		}
		result <- f() // no unlock: the thread ends with the goroutine
	}()
	return <-result
}
