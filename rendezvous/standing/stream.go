package standing

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/resume"
	"gorun/rendezvous/wire"
)

// timing limits how long a launcher looks for a daemon that it was connected to. For a host whose daemon this launcher
// has met, the job decides when it is lost: see Away.
var timing = liveness.Default()

const (
	// startTimeout is how long a host may take to start or find a daemon.
	startTimeout = 20 * time.Second
	// closeTimeout bounds the exchange of shutdown messages.
	closeTimeout = time.Second
)

// DaemonStream is the byte stream to the daemon of a job. It outlives the resident daemon that started that one: its
// goroutine reconnects through the successor.
type DaemonStream struct {
	*resume.ResumableStream
	lease   *Lease
	share   wire.Share
	session string
	term    uint64
	token   []byte
	remote  net.Addr
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	close   func()

	mu   sync.Mutex
	away liveness.Line
}

// RemoteAddr returns the host's address.
func (s *DaemonStream) RemoteAddr() net.Addr { return s.remote }

// Close ends the daemon.
func (s *DaemonStream) Close() error {
	s.close()
	return nil
}

// Start starts the job's daemon on a host of the lease. Reads and writes go to its standard output and input. Close, or
// the end of this process, ends it.
func (l *Lease) Start(ctx context.Context, host string) (*DaemonStream, error) {
	s, err := l.newStream(host, "start daemon")
	if err != nil {
		return nil, err
	}
	ask := &wire.Serve{Version: l.client.Version, Slots: s.share.Slots, Session: s.session, PatienceMS: int(l.ReconnectTimeout.Milliseconds()),
		User: l.request.User, Program: l.request.Program, Encrypt: l.Encrypt}
	for _, share := range l.Shares() {
		ask.Ranks += share.Slots
	}
	conn, err := l.client.enter(ctx, s.share.Addr, ask)
	if err != nil {
		return nil, err
	}
	s.begin(conn)
	return s, nil
}

// Adopt takes over, by its session, the daemon of a job that another launcher started. This launcher has a greater
// term. silence is how long the host may not answer, 0 for the default.
func (l *Lease) Adopt(ctx context.Context, host, session string, silence time.Duration) (*DaemonStream, error) {
	s, err := l.newStream(host, "take over daemon")
	if err != nil {
		return nil, err
	}
	s.session = session
	conn, err := s.again(ctx, &wire.Resume{Session: session, Term: s.term, Adopt: true}, cmp.Or(silence, l.Silence, timing.AdoptGrace))
	if err != nil {
		return nil, fmt.Errorf("take over daemon: %w", err)
	}
	s.begin(conn)
	return s, nil
}

func (l *Lease) newStream(host, what string) (*DaemonStream, error) {
	share, ok := l.share(host)
	if !ok {
		return nil, fmt.Errorf("%s: no slots on %s are reserved", what, host)
	}
	id := make([]byte, 8+resume.TokenSize)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return &DaemonStream{ResumableStream: resume.New(), lease: l, share: share, session: hex.EncodeToString(id[:8]), token: id[8:], term: max(l.request.Term, 1)}, nil
}

// Session returns the id that identifies the daemon.
func (s *DaemonStream) Session() string { return s.session }

// begin starts the stream on its first connection; run replaces the connection as needed.
func (s *DaemonStream) begin(conn net.Conn) {
	s.remote = conn.RemoteAddr()
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(func() { s.run(ctx, conn) })
	s.close = sync.OnceFunc(func() {
		known := s.Over() || s.Connected() && s.ResumableStream.Close(closeTimeout)
		s.Fail(net.ErrClosed)
		s.cancel()
		s.wg.Wait()
		if !known { // it may wait for its launcher elsewhere
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			defer cancel()
			s.lease.client.ask(ctx, s.where().Addr, &wire.Resume{Session: s.session, End: true, Term: s.term})
		}
	})
}

func (l *Lease) share(host string) (wire.Share, bool) {
	for _, s := range l.Shares() {
		if s.Host == host {
			return s, true
		}
	}
	return wire.Share{}, false
}

// where returns the present address of the host.
func (s *DaemonStream) where() wire.Share {
	if now, ok := s.lease.share(s.share.Host); ok {
		return now
	}
	return s.share
}

// run keeps the stream connected until it is over.
func (s *DaemonStream) run(ctx context.Context, conn net.Conn) {
	for {
		next, found := s.carry(ctx, conn)
		if !found {
			if s.Over() {
				return
			}
			s.lost(time.Now())
			var err error
			if next, err = s.again(ctx, &wire.Resume{Session: s.session, Term: s.term}, 0); err != nil {
				s.Fail(err)
				return
			}
		}
		conn = next
	}
}

// carry runs the stream on a connection until the connection ends or another one replaces it.
func (s *DaemonStream) carry(ctx context.Context, conn net.Conn) (next net.Conn, found bool) {
	over := make(chan struct{})
	listens := &resume.Listener{Reader: conn}
	var sending sync.WaitGroup
	defer sending.Wait()
	defer conn.Close()
	sending.Go(func() {
		defer close(over)
		if _, err := conn.Write(s.token); err == nil {
			s.Carry(conn, listens)
		}
		conn.Close()
	})
	client := s.lease.client
	client.knownHostTimeout = timing.ConnectTimeout
	find := func(ctx context.Context, silent func() bool) (net.Conn, bool) {
		for silent() {
			again, err := client.enter(ctx, s.where().Addr, &wire.Resume{Session: s.session, Term: s.term})
			if err == nil {
				return again, true
			}
			if _, refused := errors.AsType[*RefusedError](err); refused {
				conn.Close() // it has ended, and the reader learns why
				break
			}
			if !resume.Pause(ctx, retry) {
				break
			}
		}
		return nil, false
	}
	present := resume.Carrier[net.Conn]{Over: over, Waits: listens.Waits, SuspectAfter: timing.ReconnectAfter, Find: find, Drop: func(c net.Conn) { c.Close() }}
	return present.Follow(ctx, s.ResumableStream)
}

// Away returns the state of the connection, zero while it stands. A host that answers may still lack a daemon while that is being
// replaced.
func (s *DaemonStream) Away() liveness.Line {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// lost records that the connection is lost, and that the host may not answer.
func (s *DaemonStream) lost(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = liveness.Line{Broken: now, Unanswered: now}
}

// tried records how an attempt to connect that began at a time has ended.
func (s *DaemonStream) tried(began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.away = liveness.Line{}
	case !noAnswer(err):
		s.away.Unanswered = time.Time{}
	case s.away.Unanswered.IsZero():
		s.away.Unanswered = began
	}
}

// again reconnects to a running daemon. It gives up when the host has no such job. A host without a daemon gets at
// least AdoptGrace to start another one; a silent host gets the given time. With 0 both last until ctx ends.
func (s *DaemonStream) again(ctx context.Context, ask *wire.Resume, silence time.Duration) (net.Conn, error) {
	client := s.lease.client
	client.knownHostTimeout = timing.ConnectTimeout
	var answered time.Time // since when the host answers but has no daemon
	for {
		began := time.Now()
		conn, err := client.enter(ctx, s.where().Addr, ask)
		s.tried(began, err)
		var refused *RefusedError
		switch {
		case err == nil:
			return conn, nil
		case errors.As(err, &refused):
			return nil, err
		case silence == 0:
		case noAnswer(err):
			answered = time.Time{}
			if time.Since(s.Away().Unanswered) >= silence {
				return nil, notAgain(err)
			}
		case answered.IsZero():
			answered = began
		case time.Since(answered) >= max(silence, timing.AdoptGrace):
			return nil, notAgain(err)
		}
		if !resume.Pause(ctx, retry) {
			return nil, notAgain(err)
		}
	}
}

func notAgain(err error) error {
	return fmt.Errorf("the connection to the daemon was not to be had again: %w", err)
}

// noAnswer reports whether an attempt to connect got no answer, not even a refusal. A host whose kernel accepts the
// connection is up, even if its daemon is paused.
func noAnswer(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial" && !errors.Is(err, syscall.ECONNREFUSED)
}

// enter sends the request that turns a connection into one to the daemon of a job, or to its launcher.
func (c Client) enter(ctx context.Context, addr string, m wire.Message) (net.Conn, error) {
	conn, err := c.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	conn.SetDeadline(time.Now().Add(cmp.Or(c.startTimeout, startTimeout)))
	in := bufio.NewReaderSize(conn, 64<<10) // wire's reader uses the buffer as it is
	if err = wire.NewWriter(conn).Write(m); err == nil {
		_, err = expect[*wire.Granted](wire.NewReader(in).Read())
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return &buffered{conn, in}, nil
}

// buffered is a connection whose first bytes may be in a buffer already.
type buffered struct {
	net.Conn
	in io.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.in.Read(p) }
