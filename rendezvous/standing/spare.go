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
// next job: it was started by this binary, ends with this process, and knows of no job, or of none that is not over.

const (
	// quiet is how long no job has begun or ended before the next spare is started: to do so at once would take the
	// processor from the ranks of the job that has just begun.
	quiet = time.Second
	// maxQuiet bounds the pause after spares that have ended by themselves.
	maxQuiet = time.Minute
)

// process is the daemon of a job, which may not have it yet.
type process struct {
	pid   int
	order *net.UnixConn // by which it gets its job
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
	p := &process{pid: cmd.Process.Pid, order: ours, ended: make(chan struct{})}
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
	return resume.Hand(p.order, socket, patience)
}

// finish waits for the end of the job. The process may take another one then; otherwise it has ended, and how.
func (p *process) finish() (free bool, err error) {
	if resume.Done(p.order) {
		return true, nil
	}
	p.dismiss()
	return false, p.err
}

// dismiss ends a process that has no job, and waits for its end.
func (p *process) dismiss() {
	p.order.Close()
	limit := time.NewTimer(lastGasp)
	defer limit.Stop()
	select {
	case <-p.ended:
		return
	case <-limit.C: // it was stopped, say
	}
	syscall.Kill(-p.pid, syscall.SIGKILL)
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

// putSpare has a process wait for a job, unless there is one already or there will be no more.
func (s *server) putSpare(p *process) {
	s.mu.Lock()
	room := s.spare == nil && !s.noSpare
	if room {
		s.spare = p
	}
	s.mu.Unlock()
	if !room {
		p.dismiss()
	}
}

// keepSpare sees to it that a process waits for the next job, but starts none while jobs come and go.
func (s *server) keepSpare(ctx context.Context) {
	pause := quiet
	for s.calm(ctx, pause) {
		p, err := s.haveSpare()
		if err == nil && !s.lose(ctx, p) {
			pause = quiet
			continue
		}
		if err == nil {
			err = p.err
		}
		s.cfg.Log.Warn("spare daemon", "err", err)
		pause = min(2*pause, maxQuiet)
	}
	s.mu.Lock()
	s.noSpare = true
	s.mu.Unlock()
	if p := s.takeSpare(); p != nil {
		p.dismiss()
	}
}

// haveSpare returns the process that waits, a new one if there is none.
func (s *server) haveSpare() (*process, error) {
	s.mu.Lock()
	p := s.spare
	s.mu.Unlock()
	if p != nil {
		return p, nil
	}
	p, err := s.launch()
	if err == nil {
		s.putSpare(p)
	}
	return p, err
}

// lose waits until the spare is no spare any more, and is true if it has ended without a job.
func (s *server) lose(ctx context.Context, p *process) bool {
	for {
		s.mu.Lock()
		spare := s.spare == p
		s.mu.Unlock()
		if !spare {
			return false
		}
		select {
		case <-s.stirred:
		case <-p.ended:
			s.mu.Lock()
			defer s.mu.Unlock()
			lost := s.spare == p
			if lost {
				s.spare = nil
			}
			return lost
		case <-ctx.Done():
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
