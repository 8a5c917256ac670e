package discover

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// runInGroup runs a script in a process group of its own, so that it does not see the terminal's Ctrl-C, and ends with all
// that it started if it fails or is killed. The group ends when this process does, even if that is killed: its leader is a guard that does
// nothing but wait for the end of a pipe whose other end is held here. The guard is there first, so no script is without
// one.
func runInGroup(cmd *exec.Cmd) error {
	guard := exec.Command("/bin/sh", "-c", "read line; kill -KILL 0")
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	held, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		return fmt.Errorf("start guard: %w", err)
	}
	defer endGuard(guard, held)
	group := guard.Process.Pid
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	cmd.Cancel = func() error { return syscall.Kill(-group, syscall.SIGKILL) }
	if err := cmd.Run(); err != nil {
		cmd.Cancel()
		return err
	}
	return nil
}

// endGuard ends the guard alone: what a script that has ended well left behind is nobody's business.
func endGuard(guard *exec.Cmd, held io.Closer) {
	guard.Process.Kill()
	guard.Wait()
	held.Close()
}
