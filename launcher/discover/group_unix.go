package discover

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// runInGroup runs a script in a process group of its own, so that the terminal's Ctrl-C does not reach it, and ends all
// its processes if it fails or is killed. The group ends with this process, even if that is killed: its leader is a
// guard that only waits for the end of a pipe whose other end is held here. The guard starts first, so no script runs
// without one.
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

// endGuard ends the guard alone: the processes that a successful script left behind may run on.
func endGuard(guard *exec.Cmd, held io.Closer) {
	guard.Process.Kill()
	guard.Wait()
	held.Close()
}
