package standing

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"gorun/rendezvous/audit"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/wire"
)

// Standby is a job that this host could take over.
type Standby struct {
	authority.State
	Heard time.Time // when its launcher was last heard
}

// Launchers runs the launchers of detached jobs on this host, so that the jobs do not depend on the user's machine.
type Launchers interface {
	// Fetch gets what hosts of a job are to get, by messages with the process of its user.
	Fetch(ctx context.Context, r *wire.Detach, in <-chan wire.Message, out *wire.Writer) error
	// Start returns when the job runs, waits for slots, or has failed. Cancelling ctx ends the job.
	Start(ctx context.Context, r *wire.Detach) (*wire.Detached, error)
	// List returns the jobs whose launchers run here, and what this host keeps of the others, which are in standbys.
	List(left []Standby) (*wire.DetachedJobs, error)
	// Open connects to a job's launcher or its output. Close unblocks a Read.
	Open(r *wire.Reach) (io.ReadWriteCloser, error)
	// Asked returns what the first line that a user sends to a job's launcher asks for: "signal", with its name and its
	// sender, "output", or "native"; "" for what is not noted.
	Asked(line []byte) (what, detail string)
	// Refusal returns why a launcher's answer refuses a request, "" if it does not.
	Refusal(answer []byte) string
}

// detach starts a launcher, when it has what it gives its hosts. The user may cancel until it has started.
func (s *server) detach(ctx context.Context, conn net.Conn, in io.Reader, r *wire.Detach) {
	if otherVersion(conn, r.Version, s.cfg.Version) {
		return
	}
	if s.cfg.Launchers == nil {
		refuse(conn, "", "%s runs no launchers", s.cfg.Name)
		return
	}
	stops := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.draining {
			refuse(conn, "ask another host of the cluster", "the daemon on %s is being stopped", s.cfg.Name)
		}
		return s.draining
	}
	if stops() {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	defer conn.Close()
	said, fetched := make(chan wire.Message), make(chan struct{})
	reading.Go(func() {
		defer cancel()
		for from := wire.NewReader(in); ; {
			m, err := from.Read()
			if err != nil {
				return
			}
			select {
			case said <- m:
			case <-fetched:
			case <-ctx.Done():
				return
			}
		}
	})
	err := s.cfg.Launchers.Fetch(ctx, r, said, wire.NewWriter(conn))
	close(fetched)
	if err == nil && stops() { // that took a while
		return
	}
	var d *wire.Detached
	if err == nil {
		d, err = s.cfg.Launchers.Start(ctx, r)
	}
	if err != nil {
		var advice interface{ NextStep() string }
		hint := ""
		if errors.As(err, &advice) {
			hint = advice.NextStep()
		}
		refuse(conn, hint, "%v", err)
		return
	}
	d.Host = s.cfg.Name
	answer(conn, d)
}

func (s *server) listDetached(conn net.Conn) {
	if s.cfg.Launchers == nil {
		answer(conn, &wire.DetachedJobs{})
		return
	}
	list, err := s.cfg.Launchers.List(s.electors.standbys())
	if err != nil {
		refuse(conn, "", "%v", err)
		return
	}
	answer(conn, list)
}

// reach copies bytes between a user and a job.
func (s *server) reach(conn *audited, in io.Reader, r *wire.Reach) {
	if s.cfg.Launchers == nil {
		refuse(conn, "", "%s runs no launchers", s.cfg.Name)
		return
	}
	job, err := s.cfg.Launchers.Open(r)
	if err != nil {
		refuse(conn, "gorun ps --cluster … lists the jobs", "%v", err)
		return
	}
	if !answer(conn, &wire.Granted{}) {
		conn.Close()
	}
	var asking sync.WaitGroup
	signals := make(chan audit.Entry, 1) // that are to be answered
	asking.Go(func() {
		if r.Output {
			io.Copy(job, in)
		} else {
			s.journal.passAsked(job, in, audit.Entry{From: conn.entry.From, Key: conn.entry.Key, Job: strconv.Itoa(r.Job)}, signals)
		}
		job.Close() // unblocks the other direction
	})
	if r.Output {
		io.Copy(conn, job)
	} else {
		s.journal.passAnswer(conn, job, signals)
	}
	conn.Close()
	job.Close()
	asking.Wait()
	s.journal.noteSignal(signals, nil) // if the launcher had gone before it was asked
}

// Detach asks the daemon at addr to run a launcher. give answers what the daemon asks before, and returns its last message.
func (c Client) Detach(ctx context.Context, addr string, r wire.Detach, give func(*wire.Reader, *wire.Writer) (wire.Message, error)) (*wire.Detached, error) {
	r.Version = c.Version
	conn, err := c.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	out := wire.NewWriter(conn)
	if err := out.Write(&r); err != nil {
		return nil, err
	}
	msg, err := give(wire.NewReader(conn), out)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return expect[*wire.Detached](msg, err)
}

// Detached asks the daemon at addr, one of many that may be gone, for the detached jobs of its host.
func (c Client) Detached(ctx context.Context, addr string) (*wire.DetachedJobs, error) {
	c.knownHostTimeout = timing.ConnectTimeout
	return expect[*wire.DetachedJobs](c.ask(ctx, addr, &wire.AskDetached{}))
}

// Reach connects to a detached job on the host of the daemon at addr.
func (c Client) Reach(ctx context.Context, addr string, r wire.Reach) (net.Conn, error) {
	return c.enter(ctx, addr, &r)
}
