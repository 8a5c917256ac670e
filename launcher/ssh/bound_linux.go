package ssh

import (
	"os/exec"
	"runtime"
	"syscall"
)

// bindToThread has the kernel kill cmd when the thread ends that starts it, and keeps this thread for the goroutine: the
// kernel takes a thread for the parent, and Go may end one while the process goes on.
func bindToThread(cmd *exec.Cmd) (release func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
