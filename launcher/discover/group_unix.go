package discover

import (
	"os/exec"
	"syscall"
)

// ownGroup sees to it that the script ends with all that it started, and does not see the terminal's Ctrl-C.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
