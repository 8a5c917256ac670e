//go:build linux

package main

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

const unixTerm = unix.SIGTERM

// namespace is one to join: a kind and a process that is in it.
type namespace struct {
	kind string // as in /proc/PID/ns
	pid  int
}

// enter calls f on a thread that has joined namespaces, the mount namespace last if it is among them. Processes and
// sockets that f makes are there.
func enter(namespaces []namespace, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		result <- func() error {
			var fds []int
			defer func() {
				for _, fd := range fds {
					unix.Close(fd)
				}
			}()
			for _, n := range namespaces {
				fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", n.pid, n.kind), unix.O_RDONLY|unix.O_CLOEXEC, 0)
				if err != nil {
					return fmt.Errorf("open %s namespace of process %d: %w", n.kind, n.pid, err)
				}
				fds = append(fds, fd)
			}
			// Threads share their root and working directory; one that changes its mount namespace may not.
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("unshare file system attributes: %w", err)
			}
			for i, fd := range fds {
				if err := unix.Setns(fd, 0); err != nil {
					return fmt.Errorf("enter %s namespace of process %d: %w", namespaces[i].kind, namespaces[i].pid, err)
				}
			}
			return f()
		}()
	}()
	return <-result
}
