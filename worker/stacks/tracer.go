package stacks

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"gorun/worker/proc"
)

const (
	// endStep is how long a tool has to end after each signal, which are INT, TERM and KILL, and endTime all of that with
	// what follows.
	endStep = time.Second
	endTime = 4 * time.Second
	// settleTime is how long a process may take to stop or to go on after the end of its tracer.
	settleTime = 500 * time.Millisecond
	// mostTasks bounds how many threads of a process are looked at.
	mostTasks = 4096
)

// kept takes what a program writes and keeps the first most bytes: a tool whose output ends would be killed at work.
type kept struct {
	text []byte
	most int
}

func (k *kept) Write(b []byte) (int, error) {
	k.text = append(k.text, b[:min(len(b), k.most-len(k.text))]...)
	return len(b), nil
}

// runTool runs a tool for toolTime at most. A tool that is killed leaves the process that it reads in a stop, so it is
// interrupted first.
func runTool(ctx context.Context, path string, args []string) (out []byte, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, toolTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	stdout, stderr := &kept{most: maxDump}, &kept{most: maxSaid}
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", stdout, stderr
	cmd.Env = append(cmd.Environ(), "LC_ALL=C", "DEBUGINFOD_URLS=") // nothing is loaded from a server
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}           // a script's own children get the signals, too
	cmd.Cancel = func() error {
		end(cmd.Process)
		return nil
	}
	cmd.WaitDelay = endStep
	if err = cmd.Start(); err != nil {
		return nil, err.Error(), err
	}
	err = cmd.Wait()
	for deadline := time.Now().Add(endStep); syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) == nil && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond) // what is left of its group ends
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return stdout.text, string(stderr.text), err
}

// end asks a tool and its children to end, twice.
func end(process *os.Process) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		syscall.Kill(-process.Pid, signal)
		for deadline := time.Now().Add(endStep); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if process.Signal(syscall.Signal(0)) != nil {
				return // it has ended
			}
		}
	}
}

// stop is how a process is kept from running.
type stop int

const (
	running stop = iota
	stopped      // by a signal, or about to be
	traced       // by a tool that reads it
	ended
)

// stopOf returns how a process is kept from running. The signal by which a tracer stops a thread stays pending while the thread
// is stuck in the kernel, and stops the whole process later.
func stopOf(pid int) stop {
	text := proc.ReadOf(pid, "status")
	switch state := proc.Field(text, "State"); {
	case state == "", state[0] == 'Z', state[0] == 'X':
		return ended
	case state[0] == 'T':
		return stopped
	case state[0] == 't':
		return traced
	case pends(proc.Field(text, "ShdPnd")):
		return stopped
	}
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*")
	for _, task := range tasks[:min(len(tasks), mostTasks)] {
		if status := proc.ReadOf(pid, "task/"+filepath.Base(task)+"/status"); pends(proc.Field(status, "SigPnd")) {
			return stopped
		}
	}
	return running
}

// pends reports whether SIGSTOP is in a set of signals, as /proc writes it.
func pends(set string) bool {
	bits, _ := strconv.ParseUint(set, 16, 64)
	return bits>>(syscall.SIGSTOP-1)&1 != 0
}

// continued continues a process that its tracer has left stopped, and reports whether it had to. After a tool that has
// done its work one look is enough; where one was killed, the process takes a moment to stop.
func continued(process *os.Process, orderly bool) bool {
	for deadline := time.Now().Add(settleTime); ; time.Sleep(10 * time.Millisecond) {
		switch stopOf(process.Pid) {
		case stopped:
			return process.Signal(syscall.SIGCONT) == nil
		case ended:
			return false
		case running:
			if orderly {
				return false
			}
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}
