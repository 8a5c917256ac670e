package ssh

import (
	"os/exec"
	"runtime"
	"syscall"
)

// bindToThread makes the kernel kill cmd when the thread that starts it ends, and keeps this thread for the goroutine:
// the kernel treats the thread as the parent, and Go may end a thread while the process runs on.
func bindToThread(cmd *exec.Cmd) (release func()) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
