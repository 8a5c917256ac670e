package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Guard runs a daemon to its end, then ends everything the daemon left, and returns the daemon's exit code (128+n for
// signal n). It is the whole work of the supervisor, a process that does nothing else and so has nothing to fail for:
// whatever kills the daemon, the supervisor adopts and kills what the daemon had started.
//
// The command must be complete (Path, Args, Env, standard streams as files); Guard adds the lifeline. It also ends what is
// left of jobs whose supervisor and daemon are dead. It forwards TERM to the daemon, and the end of ctx as TERM. It does
// nothing on INT, HUP and QUIT: the launcher decides when a job ends.
func Guard(ctx context.Context, cmd *exec.Cmd) (code int, err error) {
	self, err := readSelf()
	if err != nil {
		return 1, err
	}
	if err := adoptOrphans(); err != nil {
		return 1, err
	}
	signals := catchSignals()
	defer signal.Stop(signals)

	theirs, ours, err := os.Pipe()
	if err != nil {
		return 1, fmt.Errorf("make lifeline: %w", err)
	}
	defer ours.Close() // the daemon notices its end, even when this process is killed
	if len(cmd.ExtraFiles) > 0 {
		theirs.Close()
		return 1, errors.New("start daemon: descriptor 3 is the lifeline's")
	}
	cmd.ExtraFiles = []*os.File{theirs}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM

	// The death of the thread that started the daemon counts as the parent's death, so keep the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	restore := changeSlack(usualSlack, daemonSlack)
	err = cmd.Start()
	restore()
	theirs.Close()
	if err != nil {
		return notStartable(cmd.Path, err).(*startError).code, fmt.Errorf("start daemon: %w", err)
	}

	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(sweepDead)
	term := func() {
		ours.Write([]byte{termAnnounced}) // the kernel sends TERM too, when this process dies
		cmd.Process.Signal(syscall.SIGTERM)
	}
	wg.Go(func() { forwardTerm(term, signals, ctx.Done(), ended) })
	err = cmd.Wait()
	close(ended)
	wg.Wait()
	left := endAll(self, time.Now().Add(killTimeout))
	if cmd.ProcessState == nil {
		return 1, errors.Join(fmt.Errorf("wait for daemon: %w", err), left)
	}
	return status(0, cmd.ProcessState.Sys().(syscall.WaitStatus)).Code, left
}

// catchSignals brings the signals that must not end a supervisor. It catches rather than ignores them: exec inherits
// ignored signals, and ranks must be able to get a Ctrl-C. A launcher on this machine does ignore TTIN.
func catchSignals() chan os.Signal {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGTTIN)
	return signals
}

// forwardTerm calls term when TERM arrives and when stop is closed, until the daemon has ended.
func forwardTerm(term func(), signals <-chan os.Signal, stop, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-stop:
			stop = nil
			term()
		case sig := <-signals:
			if sig == unix.SIGTERM {
				term()
			}
		}
	}
}

// endAll kills and reaps every descendant.
func endAll(self Process, deadline time.Time) error {
	pause := firstScan
	for empty := 0; ; {
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 && err != unix.EINTR {
				break
			}
		}
		if childless() {
			return nil
		}
		table, err := ReadTable()
		if err != nil {
			return err
		}
		left := living(below(byParent(table), self.PID))
		if len(left) == 0 {
			if empty++; empty == 2 { // as for Group.Stop
				return nil
			}
			continue
		}
		empty = 0
		if time.Now().After(deadline) {
			return stuck(left)
		}
		kill(left, self, unix.SIGKILL)
		time.Sleep(pause)
		pause = min(2*pause, slowScan)
	}
}

// Lifeline returns a context that ends with ErrSupervisorDied when the supervisor of this daemon dies, and a function
// that gives the lifeline up.
func Lifeline(ctx context.Context) (context.Context, func(), error) {
	return lifeline(ctx, LifelineFD)
}

func lifeline(ctx context.Context, fd int) (context.Context, func(), error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil, nil, fmt.Errorf("hold lifeline: descriptor %d is no pipe: this process has no supervisor", fd)
	}
	unix.CloseOnExec(fd) // the descriptors of ranks must not keep it open
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, nil, fmt.Errorf("hold lifeline: %w", err)
	}
	f := os.NewFile(uintptr(fd), "lifeline")
	above := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(above))
	forwarded := make(chan struct{}, 1)
	// The kernel sends the daemon TERM when its supervisor dies, shortly before or after the lifeline ends.
	forget := context.AfterFunc(above, func() {
		select {
		case <-forwarded:
		case <-ctx.Done():
		case <-time.After(closeDelay):
		}
		cancel(context.Cause(above))
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		for b := []byte{0}; ; {
			if _, err := f.Read(b); errors.Is(err, os.ErrClosed) {
				return
			} else if err != nil {
				cancel(ErrSupervisorDied)
				return
			}
			select {
			case forwarded <- struct{}{}:
			default: // by an earlier TERM
			}
		}
	})
	return ctx, func() {
		forget()
		f.Close()
		wg.Wait()
		cancel(context.Canceled)
	}, nil
}

// A supervisor writes termAnnounced to the lifeline before it forwards TERM.
const termAnnounced = 'T'

// closeDelay bounds how long the lifeline of a dying supervisor outlasts the kernel's TERM: the supervisor's threads end one
// after the other, and the last one closes the descriptors. A signal that only the daemon gets takes effect after this time.
const closeDelay = 2 * time.Second
