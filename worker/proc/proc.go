// Package proc runs ranks as processes of one host and makes sure that nothing they started outlives them.
//
// A Group holds the ranks of one job. Its loop is one goroutine on a thread of its own, which is the parent of every
// rank: it starts them, notices their ends, finds in /proc what they left behind, kills and reaps it. Each rank adds a
// goroutine that waits for the process and one for each output pipe. Close ends all of them. There is one Group in a
// process, because adopting orphans (child subreaper) is a property of the process.
//
// Guard is the supervisor. It runs the daemon as its child, outlives it in every case, and ends what the daemon left.
// Lifeline notifies the daemon when its supervisor dies. When both are killed at once, ranks die with them; processes
// that ranks started are found by their brand. The next supervisor of that user looks for brands of any job, and Sweep
// for the mark of one job as well.
//
// The package does not decide when a job ends, keeps no output, and restarts nothing.
package proc

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Spec is one rank to start.
type Spec struct {
	// Process numbers the rank among all that the job ever starts. It stays the same when another epoch gives the
	// process another rank.
	Process int

	Argv  []string // looked up in the PATH of Env, relative to Dir
	Env   []string // all of it; nothing is inherited from the daemon
	Dir   string   // "" for the daemon's
	Stdin bool     // standard input is a pipe (Group.Stdin) instead of /dev/null
	CPUs  []int    // bind the rank to these; empty for no binding
	Nodes []int    // NUMA nodes to prefer for its memory; empty for the node it runs on
	// Inherit, if not nil, is descriptor 3 of the rank. Start closes it here, whether the rank starts or not.
	Inherit *os.File
}

// Exit is the end of a rank. There is exactly one for every Start.
type Exit struct {
	Process int

	Code   int            // exit status; 128+n for signal n; 127, 126 or 1 if it could not start
	Signal syscall.Signal // 0 if none
	Err    error          // why it could not start
	File   string         // the program that was found in PATH, if it could
}

// Config configures a Group.
type Config struct {
	// Job marks the processes of this job: ranks carry it as GORUN_JOB beside GORUN_PROCESS, which identifies a process
	// that detached itself from its rank.
	Job string
	// Linger is the time between TERM and KILL for processes that a rank left behind. 0 means 500 ms.
	Linger time.Duration
	// Drain is how long to wait for output from a pipe that is still open although the rank and everything it started
	// have ended. 0 means 1 s.
	Drain time.Duration
}

// Names of the variables that mark the processes of a rank.
const (
	envJob     = "GORUN_JOB"
	envProcess = "GORUN_PROCESS"
)

// killTimeout is how long a killed process may take to disappear. One that takes longer is stuck in the kernel (a dead
// file server, a broken device), where no signal reaches it.
const killTimeout = 5 * time.Second

// ErrStopping is the reason why a rank is not started while the group is being stopped.
var ErrStopping = errors.New("the job is being stopped")

// StuckError names processes that outlived SIGKILL.
type StuckError struct{ PIDs []int }

// stuck names processes that are left.
func stuck(left []Process) *StuckError {
	e := &StuckError{}
	for _, p := range left {
		e.PIDs = append(e.PIDs, p.PID)
	}
	slices.Sort(e.PIDs)
	return e
}

func (e *StuckError) Error() string {
	s := fmt.Sprint(e.PIDs)
	return "processes " + s[1:len(s)-1] + " cannot be killed: they are stuck in the kernel; the host may need a reboot"
}

// program returns what the rank is to run, "" for nothing.
func (s Spec) program() string {
	if len(s.Argv) == 0 {
		return ""
	}
	return s.Argv[0]
}

// environment returns the rank's environment: the given one, the marks, and PWD as a shell would set it.
func (s Spec) environment(job string) []string {
	env := append(slices.Clone(s.Env), envJob+"="+job, fmt.Sprintf("%s=%d", envProcess, s.Process))
	if s.Dir != "" {
		env = append(env, "PWD="+s.Dir)
	}
	return env
}

// variable returns the value of a variable; the last one counts, as it does for os/exec.
func variable(env []string, name string) (string, bool) {
	for _, kv := range slices.Backward(env) {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// status translates how a process ended.
func status(process int, ws syscall.WaitStatus) Exit {
	if ws.Signaled() {
		return Exit{Process: process, Code: 128 + int(ws.Signal()), Signal: ws.Signal()}
	}
	return Exit{Process: process, Code: ws.ExitStatus()}
}

// Within returns what f returns, and false if that takes longer. A server that is gone has system calls wait for ever,
// and nothing but the end of the process ends them: f may be left behind.
func Within[T any](limit time.Duration, f func() T) (result T, ok bool) {
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case result = <-done:
		return result, true
	case <-time.After(limit):
		return result, false
	}
}
