//go:build !linux

package proc

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"syscall"
	"time"
)

var errNotLinux = errors.New("ranks run on Linux only; on this system gorun can launch, not work")

// Group is the ranks of one job on this host, which must be Linux.
type Group struct{}

// Open fails: hosts are Linux.
func Open(Config) (*Group, error) { return nil, errNotLinux }

// Exits is never reached.
func (*Group) Exits() <-chan Exit { return nil }

// Start is never reached.
func (*Group) Start(Spec, io.Writer, io.Writer) int { return 0 }

// Stdin is never reached.
func (*Group) Stdin(int) io.WriteCloser { return nil }

// Signal is never reached.
func (*Group) Signal(syscall.Signal) {}

// Stop is never reached.
func (*Group) Stop(context.Context, time.Duration) error { return errNotLinux }

// Interrupt fails.
func (*Group) Interrupt(context.Context, time.Duration) error { return errNotLinux }

// Close is never reached.
func (*Group) Close() error { return errNotLinux }

// Guard fails: hosts are Linux.
func Guard(context.Context, *exec.Cmd) (int, error) { return 1, errNotLinux }

// Lifeline fails: hosts are Linux.
func Lifeline(context.Context) (context.Context, func(), error) { return nil, nil, errNotLinux }

// Cgroup is for Linux.
type Cgroup struct{}

// Ended is false.
func (*Cgroup) Ended() bool { return false }

// InheritCgroup returns none.
func InheritCgroup() *Cgroup { return nil }

// Sweep fails: hosts are Linux.
func Sweep(string) error { return errNotLinux }

// Files are for Linux.
type Files struct {
	PID   int
	Paths []string
}

// FilesBelow is never reached.
func FilesBelow([]int, func(string) bool) (map[int][]Files, error) { return nil, errNotLinux }

// Environment is never reached.
func Environment(int) []string { return nil }

// Describe is never reached.
func Describe(int) string { return "" }

// Used is for Linux.
func Used([]int) (map[int]Usage, error) { return nil, errNotLinux }
