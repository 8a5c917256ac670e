package standing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"gorun/rendezvous/resume"
)

// Starting the daemon of a job takes longer than everything else before its ranks start. So one daemon is prestarted
// for the next job. It runs this binary, ends with this process, and has no job until it gets one.

const (
	// prestartDelay is how long no job may have started or ended before the next daemon is prestarted. Doing so at once
	// would take the processor from the ranks of the job that has just started.
	prestartDelay = time.Second
	// maxPrestartDelay bounds the pause after prestarted daemons that ended by themselves.
	maxPrestartDelay = time.Minute
)

// prestart keeps the process for the next job.
type prestart struct {
	command func() *exec.Cmd
	log     *slog.Logger
	stirred chan struct{} // a job has started or ended

	mu      sync.Mutex
	process *process // nil if there is none
	closed  bool     // no more are started
}

// process is the daemon of a job, or one without a job yet.
type process struct {
	pid   int
	order *net.UnixConn // carries its job
	ended chan struct{}
	err   error // the result
}

// launch starts a process. It ends with this one unless it gets a job.
func (r *prestart) launch() (*process, error) {
	ours, theirs, err := resume.Pair()
	if err != nil {
		return nil, fmt.Errorf("start daemon: %w", err)
	}
	defer theirs.Close()
	cmd := r.command()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C at a terminal is for this daemon
	cmd.WaitDelay = 2 * time.Second
	cmd.Stdin = theirs
	var stderr bytes.Buffer
	cmd.Stderr = &limited{&stderr, 16 << 10}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("start daemon: %w", err)
	}
	p := &process{pid: cmd.Process.Pid, order: ours, ended: make(chan struct{})}
	go func() { // until it or this process ends: see leaveJobs
		defer close(p.ended)
		if p.err = cmd.Wait(); p.err == nil {
			return
		}
		said := strings.TrimSpace(stderr.String())
		if said = said[strings.LastIndexByte(said, '\n')+1:]; said != "" {
			p.err = errors.New(said)
		}
	}()
	return p, nil
}

// give assigns a job to the process.
func (p *process) give(session resume.Session, patience time.Duration) error {
	socket, err := session.Listen()
	if err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	defer socket.Close()
	return resume.Hand(p.order, socket, patience)
}

// finish waits for the end of the job. It returns whether the process can take another one, or else how it ended.
func (p *process) finish() (free bool, err error) {
	if resume.Done(p.order) {
		return true, nil
	}
	p.dismiss()
	return false, p.err
}

// dismiss ends a process that has no job, and waits for it.
func (p *process) dismiss() {
	p.order.Close()
	limit := time.NewTimer(endTimeout)
	defer limit.Stop()
	select {
	case <-p.ended:
		return
	case <-limit.C: // it is stopped, for example
	}
	syscall.Kill(-p.pid, syscall.SIGKILL)
	<-p.ended
}

// take takes the prestarted process, nil if there is none.
func (r *prestart) take() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.process
	r.process = nil
	return p
}

// put keeps a process for the next job, unless there is one already or no more are wanted.
func (r *prestart) put(p *process) {
	r.mu.Lock()
	room := r.process == nil && !r.closed
	if room {
		r.process = p
	}
	r.mu.Unlock()
	if !room {
		p.dismiss()
	}
}

// keep keeps one process prestarted, but starts none while jobs come and go, and fewer if they end by themselves.
func (r *prestart) keep(ctx context.Context) {
	pause := prestartDelay
	due := time.NewTimer(pause)
	defer due.Stop()
	failed := func(err error) {
		r.log.Warn("prestart daemon", "err", err)
		pause = min(2*pause, maxPrestartDelay)
		due.Reset(pause)
	}
	for {
		r.mu.Lock()
		p := r.process
		r.mu.Unlock()
		var ended chan struct{}
		if p != nil {
			ended = p.ended
		}
		select {
		case <-r.stirred:
			if p != nil { // it may have been taken
				pause = prestartDelay
			}
			due.Reset(pause)
		case <-ended:
			if r.drop(p) {
				failed(p.err)
			}
		case <-due.C:
			if p == nil {
				if p, err := r.launch(); err == nil {
					r.put(p)
				} else {
					failed(err)
				}
			}
		case <-ctx.Done():
			r.mu.Lock()
			r.closed = true
			r.mu.Unlock()
			if p := r.take(); p != nil {
				p.dismiss()
			}
			return
		}
	}
}

// drop forgets a process that has ended. It returns false if the process was taken before.
func (r *prestart) drop(p *process) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	had := r.process == p
	if had {
		r.process = nil
	}
	return had
}

// stir records that a job has started or ended.
func (r *prestart) stir() {
	select {
	case r.stirred <- struct{}{}:
	default:
	}
}
