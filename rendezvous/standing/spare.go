package standing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"gorun/rendezvous/resume"
)

// To start the daemon of a job takes longer than all that it does until ranks start. So there is one that waits for the
// next job: it knows nothing yet, was started by this binary, and ends with this process.

const (
	// quiet is how long no job has begun or ended before the next spare is started: to do so at once would take the
	// processor from the ranks of the job that has just begun.
	quiet = time.Second
	// maxQuiet bounds the pause after spares that have ended by themselves.
	maxQuiet = time.Minute
)

// process is the daemon of a job, which may not have it yet.
type process struct {
	order *net.UnixConn // what it waits at for its job
	ended chan struct{}
	err   error // how, then
}

// launch starts a process. Nothing of it depends on this one but that it goes if it is not given a job.
func (s *server) launch() (*process, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, fmt.Errorf("start daemon: %w", err)
	}
	defer theirs.Close()
	cmd := s.cfg.Command()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C at a terminal is for us
	cmd.WaitDelay = 2 * time.Second
	cmd.Stdin = theirs
	var stderr bytes.Buffer
	cmd.Stderr = &limited{&stderr, 16 << 10}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("start daemon: %w", err)
	}
	p := &process{order: ours, ended: make(chan struct{})}
	go func() { // to its end, or to that of this process: see leaveJobs
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

// give gives the process its job.
func (p *process) give(session resume.Session, patience time.Duration) error {
	socket, err := session.Listen()
	if err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	defer socket.Close()
	defer p.order.Close()
	return resume.Hand(p.order, socket, patience)
}

// dismiss ends a process that has no job.
func (p *process) dismiss() {
	p.order.Close()
	<-p.ended
}

// takeSpare returns the process that waits for a job, nil if there is none.
func (s *server) takeSpare() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.spare
	s.spare = nil
	return p
}

// keepSpare sees to it that a process waits for the next job, except while jobs come and go.
func (s *server) keepSpare(ctx context.Context) {
	pause := quiet
	for s.calm(ctx, pause) {
		p, err := s.launch()
		if err != nil {
			s.cfg.Log.Warn("spare daemon", "err", err)
			pause = min(2*pause, maxQuiet)
			continue
		}
		if s.offer(ctx, p) {
			pause = quiet
		} else {
			pause = min(2*pause, maxQuiet)
		}
	}
}

// offer has the process wait for a job, and is true when that has come. Otherwise it has ended.
func (s *server) offer(ctx context.Context, p *process) bool {
	s.mu.Lock()
	s.spare = p
	s.mu.Unlock()
	for {
		select {
		case <-s.stirred: // perhaps by the end of a job
			s.mu.Lock()
			taken := s.spare == nil
			s.mu.Unlock()
			if taken {
				return true
			}
		case <-p.ended:
			if s.takeSpare() == nil {
				return true
			}
			s.cfg.Log.Warn("spare daemon", "err", p.err)
			return false
		case <-ctx.Done():
			if s.takeSpare() != nil {
				p.dismiss()
			}
			return false
		}
	}
}

// calm waits until nothing has stirred for so long, and is false at the end of ctx.
func (s *server) calm(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case <-s.stirred:
			timer.Reset(max(pause, quiet))
		case <-ctx.Done():
			return false
		}
	}
}

// stir notes that a job has begun or ended.
func (s *server) stir() {
	select {
	case s.stirred <- struct{}{}:
	default:
	}
}

// pair makes two sockets that lead to each other: ours, and the one that a process inherits.
func pair() (ours *net.UnixConn, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("make sockets: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "order")
	file := os.NewFile(uintptr(fds[0]), "order")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("make sockets: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}
