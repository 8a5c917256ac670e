package dial

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/hosts"
	"gorun/launcher/ssh"
	"gorun/launcher/talk"
)

// Local starts daemons as children of the launcher, for hosts that are the launcher's own machine.
type Local struct {
	Exe  string   // this binary
	Args []string // that make it a worker
	Env  []string
	// Patience is how long a worker may take to end after its connection was closed.
	Patience time.Duration
}

// Dial implements Dialer.
func (l Local) Dial(_ context.Context, host string) (*talk.Daemon, error) {
	cmd := exec.Command(l.Exe, l.Args...)
	cmd.Env = l.Env
	cmd.SysProcAttr = ownGroup() // a Ctrl-C at the terminal is for the launcher, which then stops the job in order
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	stderr := &ssh.Said{Limit: 4 << 10}
	cmd.Stderr = stderr
	cmd.WaitDelay = 2 * time.Second // for what the daemon may have left behind with its standard error
	if err := cmd.Start(); err != nil {
		return nil, &hosts.Error{Host: host, Step: "start daemon", Err: err, Code: failure.ExitTransport}
	}
	wait := sync.OnceValue(cmd.Wait)
	ip, err := netip.ParseAddr(host)
	return &talk.Daemon{In: in, Out: out, Identity: talk.Identity{Own: err == nil && ip.IsLoopback()},
		Close: func() error { // the worker takes it as the order to stop its ranks and itself
			time.AfterFunc(l.Patience, func() { // what it started notices its end, and is not waited for
				cmd.Process.Kill()
				out.Close()
			})
			return in.Close()
		},
		Wait: func() (string, error) {
			err := wait()
			return stderr.String(), err
		},
		Sweep: func(ctx context.Context, job string) error {
			wait()
			if cmd.ProcessState.Exited() && cmd.ProcessState.ExitCode() < 128 || stderr.String() != "" {
				return nil // not killed, or the supervisor has reported it
			}
			sweep := exec.CommandContext(ctx, l.Exe, append(slices.Clone(l.Args), "--sweep", job)...)
			sweep.Env = l.Env
			return sweep.Run()
		}}, nil
}

// ownGroup starts a process in a process group of its own.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// signalGroup sends a signal to all processes of a group, by the number of the process that began it.
func signalGroup(pid int, sig syscall.Signal) { syscall.Kill(-pid, sig) }
