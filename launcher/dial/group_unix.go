package dial

import "syscall"

// ownGroup starts a process in a process group of its own.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// signalGroup sends a signal to all processes of a group, by the number of the process that began it.
func signalGroup(pid int, sig syscall.Signal) { syscall.Kill(-pid, sig) }
