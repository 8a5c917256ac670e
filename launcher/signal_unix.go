package launcher

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func signalName(n int) string { return unix.SignalName(syscall.Signal(n)) }
