package standing

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"gorun/rendezvous/audit"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// reserveHint accompanies refusals of slots.
const reserveHint = "gorun ps --cluster … shows what there is"

// encryptHint accompanies refusals of jobs that do not encrypt.
const encryptHint = "start every daemon of the cluster with --require-encrypt: launchers then encrypt by themselves"

// cleanupGrace is how long a host waits for the slots of a job that is just ending after its launcher was killed.
// It is short: a job that holds slots elsewhere must not wait long for one that does so here.
const cleanupGrace = 8 * time.Second

// reserve keeps a job in the queue until its launcher closes the connection.
func (s *server) reserve(conn *audited, in io.Reader, r *wire.Reserve) {
	if len(r.Held) == 0 && otherVersion(conn, r.Version, s.cfg.Version) { // a running job may outlive its version, but a new one must match
		return
	}
	t := &ticket{request: *r, since: time.Now()}
	takes, gone := make(chan struct{}), make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(gone)
		if _, err := wire.NewReader(in).Read(); err == nil {
			close(takes)
			io.Copy(io.Discard, in) // nothing more is expected
		}
	})
	defer reading.Wait()
	defer conn.Close()
	if !s.enqueue(conn, t) {
		return
	}
	defer s.released(t, conn)
	answers := reservation{server: s, conn: conn, ticket: t, first: true}
	for {
		news, ok := answers.report(takes != nil)
		if !ok {
			return
		}
		select {
		case <-news:
		case <-takes:
			takes, answers.first, answers.late = nil, true, nil
		case <-answers.late:
			s.cfg.Log.Warn("slots go back: the launcher that waited for them does not answer; is it stopped?",
				"user", r.User, "program", r.Program)
			return
		case <-gone:
			return
		}
	}
}

// released takes a job out of the queue.
func (s *server) released(t *ticket, conn *audited) {
	s.change(func() { s.queue.remove(t) })
	s.journal.note(audit.Entry{What: "release", From: conn.entry.From, Key: conn.entry.Key, Claims: &audit.Claims{User: t.request.User, Program: t.request.Program}})
}

// enqueue puts a job into the queue. Otherwise it answers the launcher and returns false.
func (s *server) enqueue(conn net.Conn, t *ticket) bool {
	s.mu.Lock()
	var err error
	queueAddr := s.queueAddr
	if queueAddr == "" {
		if err = s.queue.add(t); err == nil {
			s.announce()
		}
	}
	s.mu.Unlock()
	switch {
	case queueAddr != "":
		answer(conn, &wire.Elsewhere{Addr: queueAddr})
		return false
	case err != nil:
		_, small := errors.AsType[*smallError](err)
		answer(conn, &wire.Refused{Text: err.Error(), Hint: reserveHint, Small: small})
		return false
	}
	return true
}

// reservation is what the launcher of a job in the queue knows of its place there.
type reservation struct {
	server *server
	conn   net.Conn
	ticket *ticket
	first  bool             // the launcher is to hear of its slots although they are as before
	reason string           // the last reason why the job waits, "" if it never did
	shares []wire.Share     // the slots that were granted last
	late   <-chan time.Time // fires when the launcher has not confirmed the slots, nil if it need not
}

// report answers the launcher if something is new for it. It returns what is closed at the next change of the queue; ok
// is false if the connection is of no more use. A launcher that has waited may be stopped by now: if it has not
// confirmed any slots yet, it is asked to.
func (r *reservation) report(unconfirmed bool) (news <-chan struct{}, ok bool) {
	s := r.server
	s.mu.Lock()
	news, queueAddr, granted, shares, others, reason := s.news, s.queueAddr, r.ticket.granted, r.ticket.shares, s.others(), ""
	if !granted {
		reason = s.queue.waitsFor(r.ticket)
	}
	s.mu.Unlock()
	switch {
	case queueAddr != "":
		answer(r.conn, &wire.Elsewhere{Addr: queueAddr})
		return nil, false
	case granted && (r.first || !slices.Equal(shares, r.shares)):
		ask := r.reason != "" && unconfirmed
		if ask && r.late == nil {
			r.late = time.After(s.cfg.takeTimeout)
		}
		r.first, r.shares = false, shares
		return news, answer(r.conn, &wire.Granted{Shares: shares, Others: others, Ask: ask, Encrypt: s.cfg.RequireEncrypt})
	case !granted && reason != r.reason:
		r.reason = reason
		return news, answer(r.conn, &wire.Queued{Text: reason, Others: others})
	}
	return news, true
}

// others returns where else the cluster can be asked. It is called with mu held.
func (s *server) others() []string {
	var out []string
	for _, h := range s.queue.hosts {
		out = append(out, h.Addr)
	}
	return out
}

// take counts slots as used. It waits a moment for slots of a job that has just ended.
func (s *server) take(n int) error {
	timeout := time.NewTimer(cleanupGrace)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		news, used, draining := s.news, s.used, s.draining
		if !draining && used+n <= s.cfg.Slots {
			s.used += n
			s.announce()
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		if draining {
			return errors.New("the daemon is being stopped")
		}
		select {
		case <-news:
		case <-timeout.C:
			return fmt.Errorf("%d of %s in use by other jobs", used, topology.Count(s.cfg.Slots, "slot"))
		}
	}
}

// listing returns the queue, if this host holds it, or else what this host knows.
func (s *server) listing(here bool) wire.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queueAddr != "" && !here {
		return &wire.Elsewhere{Addr: s.queueAddr}
	}
	out := &wire.Jobs{Host: s.cfg.Name, Members: slices.Clone(s.queue.hosts)}
	promised := s.queue.promised()
	for i, m := range out.Members {
		out.Members[i].Used = max(m.Used, promised[m.Host])
	}
	for _, t := range s.queue.tickets {
		ranks := 0
		for _, share := range t.shares {
			ranks += share.Slots
		}
		out.Jobs = append(out.Jobs, wire.JobState{User: t.request.User, Program: t.request.Program,
			Ranks: max(ranks, t.request.Ranks), Shares: t.shares,
			Seconds: int(time.Since(t.since).Seconds())})
	}
	return out
}
