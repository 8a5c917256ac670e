package standing

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
)

// noLaunchers has no jobs.
type noLaunchers struct{ Launchers }

func (noLaunchers) Open(*wire.Reach) (io.ReadWriteCloser, error) {
	return nil, errors.New("job 7: no such job")
}

// slowFiles gets all files, and calls done meanwhile.
type slowFiles struct {
	Launchers
	done func()
}

func (l slowFiles) Fetch(context.Context, *wire.Detach, <-chan wire.Message, *wire.Writer) error {
	l.done()
	return nil
}

// TestRefusals: what a daemon answers to a connection that it cannot serve.
func TestRefusals(t *testing.T) {
	const session = "0123456789abcdef"
	for _, tt := range []struct {
		ask        func(*server, net.Conn)
		text, hint string
	}{
		{func(s *server, conn net.Conn) {
			s.serve(conn, conn, &wire.Serve{Version: "1", Slots: 0, Session: session})
		}, `a job of 0 slots, session "0123456789abcdef"`, ""},
		{func(s *server, conn net.Conn) {
			s.serve(conn, conn, &wire.Serve{Version: "1", Slots: 1, Session: session})
		}, "2 of 2 slots in use by other jobs", "start the job again"},
		{func(s *server, conn net.Conn) {
			s.cfg.RequireEncrypt = true
			s.serve(conn, conn, &wire.Serve{Version: "1", Slots: 1, Session: session})
		}, "this host takes only jobs that encrypt what hosts send each other", "start every daemon of the cluster with --require-encrypt: launchers then encrypt by themselves"},
		{func(s *server, conn net.Conn) {
			s.draining = true
			s.serve(conn, conn, &wire.Serve{Version: "1", Slots: 1, Session: session})
		}, "the daemon is being stopped", "start the job again"},
		{func(s *server, conn net.Conn) {
			s.draining = true
			s.detach(t.Context(), conn, conn, &wire.Detach{Version: "1"})
		}, "the daemon on north is being stopped", "ask another host of the cluster"},
		{func(s *server, conn net.Conn) {
			s.cfg.Launchers = slowFiles{done: func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.draining = true
			}}
			s.detach(context.Background(), conn, conn, &wire.Detach{Version: "1"})
		}, "the daemon on north is being stopped", "ask another host of the cluster"},
		{func(s *server, conn net.Conn) {
			s.cfg.Launchers = nil
			s.detach(t.Context(), conn, conn, &wire.Detach{Version: "1"})
		}, "north runs no launchers", ""},
		{func(s *server, conn net.Conn) {
			s.reach(&audited{Conn: conn, log: s.journal.note}, conn, &wire.Reach{})
		}, "job 7: no such job", "gorun ps --cluster … lists the jobs"},
		{func(s *server, conn net.Conn) {
			s.electors.elect(conn, "job", nil)
		}, "north keeps nothing for jobs", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{cfg: Config{Name: "north", Version: "1", Slots: 2, Launchers: noLaunchers{}, Log: slog.New(slog.DiscardHandler)},
				electors: electors{name: "north"}, used: 2, news: make(chan struct{})}
			ours, theirs := net.Pipe()
			go func() {
				tt.ask(s, theirs)
				theirs.Close()
			}()
			m, err := wire.NewReader(ours).Read()
			ours.Close()
			if r, ok := m.(*wire.Refused); err != nil || !ok || r.Text != tt.text || r.Hint != tt.hint {
				t.Errorf("%+v, %v; want %q, %q", m, err, tt.text, tt.hint)
			}
		})
	}
}

// TestTakenOver: a launcher that was replaced has its job in the queue no more.
func TestTakenOver(t *testing.T) {
	q := queue{hosts: of("a:4")}
	must.Do(t, q.add(&ticket{request: wire.Reserve{Job: "x", Term: 2, Ranks: 1}}))
	if err := q.add(&ticket{request: wire.Reserve{Job: "x", Term: 1, Ranks: 1}}); err == nil || !strings.Contains(err.Error(), "another launcher has taken the job over") {
		t.Errorf("the former launcher: %v", err)
	}
	if err := q.add(&ticket{request: wire.Reserve{Job: "x", Term: 3, Ranks: 1}}); err != nil || len(q.tickets) != 1 {
		t.Errorf("the next launcher: %v, %d jobs", err, len(q.tickets))
	}
}
