package dial

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"time"

	"gorun/launcher"
	"gorun/launcher/failure"
	"gorun/launcher/hosts"
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
func (l Local) Dial(_ context.Context, host string) (*launcher.Daemon, error) {
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
	stderr := &tail{limit: 4 << 10}
	cmd.Stderr = stderr
	cmd.WaitDelay = 2 * time.Second // for what the daemon may have left behind with its standard error
	if err := cmd.Start(); err != nil {
		return nil, &hosts.Error{Host: host, Step: "start daemon", Err: err, Code: failure.ExitTransport}
	}
	wait := sync.OnceValue(cmd.Wait)
	return &launcher.Daemon{
		In:  in,
		Out: out,
		// The worker takes the end of its input as the order to stop its ranks and itself. One that does
		// not is killed; what it started notices that.
		Close: func() error {
			time.AfterFunc(l.Patience, func() { cmd.Process.Kill() })
			return in.Close()
		},
		Wait: func() (string, error) { err := wait(); return stderr.String(), err },
		Sweep: func(ctx context.Context, job string) error {
			wait()
			if cmd.ProcessState.Exited() && cmd.ProcessState.ExitCode() < 128 || stderr.String() != "" {
				return nil // not killed, or the supervisor has reported it
			}
			sweep := exec.CommandContext(ctx, l.Exe, append(slices.Clone(l.Args), "--sweep", job)...)
			sweep.Env = l.Env
			return sweep.Run()
		},
	}, nil
}

// tail keeps the last bytes written to it.
type tail struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	limit int
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(b)
	if n := t.buf.Len() - t.limit; n > 0 {
		t.buf.Next(n)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
