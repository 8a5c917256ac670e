package link

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"gorun/collective/admit"
	"gorun/collective/flight"
)

// Config identifies a mesh and its owner. Zero values of the second part mean the defaults.
type Config struct {
	Self     int    // id of this host
	Job      string // members of other jobs are refused
	Key      []byte // 32 bytes, secret to the job
	Handler  Handler
	Listener net.Listener // accepts the peers' streams; closed by Run
	// Dial opens a connection to a peer for a stream of this number. A peer may have several addresses, and streams may
	// prefer different ones.
	Dial func(ctx context.Context, peer, stream int) (net.Conn, error)
	// Narrow is like Dial, but neither end of its connection sends larger packets than that, in bytes with headers. It
	// serves paths that silently lose large packets; without it a link over such a path carries nothing.
	Narrow func(ctx context.Context, peer, stream, packet int) (net.Conn, error)
	// Narrowed is called when a link finds that large packets to a peer are lost.
	Narrowed func(Narrowing)
	// Damaged is called when a stream has delivered damaged data and is replaced.
	Damaged func(Damage)
	// Lost is called, once per link, when the peer has given up its end: err wraps ErrRestarted or ErrReopened. The
	// link is dead; Forget it, and Connect again to continue.
	Lost func(peer int, err error)
	Log  *slog.Logger
	// Upgrade, if not nil, may have something else than a TCP connection carry a stream. It is called when both sides
	// have proven who they are and both have the function, and returns what is to carry the bytes from there on, or conn
	// itself; an error means that conn is of no use any more. What it returns may be an [Upgraded]. What is written to conn
	// is authenticated, at most 4 KiB in one call.
	Upgrade func(ctx context.Context, conn net.Conn, peer, stream int) (net.Conn, error)
	Encrypt bool // what hosts send each other; both sides must

	Streams int  // per link, at most 64; 4. If there are several, the first carries small segments only
	Check   bool // authenticate long payloads, too; encryption does so anyway
	Window  int  // segments of a link in flight; 4096, which is also the maximum

	AckBytes    int           // acknowledge after that many bytes; 1 MiB
	AckSegments int           // or that many segments; 64
	AckDelay    time.Duration // or that long after the first; 1 ms

	HandshakeTimeout time.Duration // 3 s
	DialTimeout      time.Duration // 1 s
	// ProgressTimeout is how long a stream may make no progress before it is replaced: four times that if the peer's
	// kernel answers, a quarter if nothing at all comes from the peer. 1 s.
	ProgressTimeout time.Duration
	FallbackDial    time.Duration // the side with the higher id dials after that long; 500 ms
	BackoffMin      time.Duration // between attempts to dial, doubling; 10 ms
	BackoffMax      time.Duration // 500 ms
}

func (c *Config) fill() error {
	switch {
	case len(c.Key) != 32:
		return errors.New("key must have 32 bytes")
	case c.Handler == nil:
		return errors.New("handler is missing")
	case c.Streams < 0 || c.Streams > 64:
		return fmt.Errorf("%d streams, want 1 to 64", c.Streams)
	case c.Window < 0 || c.Window > span:
		return fmt.Errorf("window of %d segments, want 1 to %d", c.Window, span)
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Streams = cmp.Or(c.Streams, 4)
	c.Window = cmp.Or(c.Window, span)
	c.AckBytes = cmp.Or(c.AckBytes, 1<<20)
	c.AckSegments = cmp.Or(c.AckSegments, 64)
	c.AckDelay = cmp.Or(c.AckDelay, time.Millisecond)
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, 3*time.Second)
	c.DialTimeout = cmp.Or(c.DialTimeout, time.Second)
	c.ProgressTimeout = cmp.Or(c.ProgressTimeout, time.Second)
	c.FallbackDial = cmp.Or(c.FallbackDial, 500*time.Millisecond)
	c.BackoffMin = cmp.Or(c.BackoffMin, 10*time.Millisecond)
	c.BackoffMax = max(cmp.Or(c.BackoffMax, 500*time.Millisecond), c.BackoffMin)
	return nil
}

// Mesh holds the links of a host.
type Mesh struct {
	cfg         Config
	log         *slog.Logger
	cred        credentials
	incarnation [16]byte
	window      uint64
	born        time.Time

	ctx      context.Context // ends with Run: the lifetime of the mesh's goroutines
	cancel   context.CancelFunc
	links    atomic.Pointer[map[int]*link] // copied when it changes: Send only reads
	changed  *notice                       // a stream was opened or closed
	flushed  *notice                       // segments were acknowledged
	refusals refusals
	copies   copyPools
	pinned   atomic.Pointer[func(stream int)]
	door     admit.Door
	dialers  atomic.Int32
	events   events

	mu     sync.Mutex
	wg     sync.WaitGroup
	closed bool
	opened uint64 // links so far
	past   Totals // of forgotten links
}

// NewMesh returns a mesh without links. Run must be called, or the listener and the links are never closed.
func NewMesh(cfg Config) (*Mesh, error) {
	if err := cfg.fill(); err != nil {
		return nil, fmt.Errorf("create mesh: %w", err)
	}
	m := &Mesh{
		cfg: cfg, log: cfg.Log, cred: credentials{cfg.Job, cfg.Key, cfg.Encrypt}, window: uint64(cfg.Window), born: time.Now(),
		changed: newNotice(), flushed: newNotice(), copies: newCopyPools(),
	}
	rand.Read(m.incarnation[:])
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.links.Store(&map[int]*link{})
	m.refusals.log = cfg.Log
	m.events = events{since: m.born, ring: flight.NewRing[flight.Link](flight.Links)}
	return m, nil
}

// Run accepts streams until ctx ends. Then it closes all links and returns when every goroutine of the mesh has ended.
// See Flush for data that is in flight then.
func (m *Mesh) Run(ctx context.Context) error {
	accepted := make(chan error, 1)
	if m.cfg.Listener == nil || !m.start(func() { accepted <- m.accept() }) {
		accepted <- nil
	}
	<-ctx.Done()
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	if m.cfg.Listener != nil {
		m.cfg.Listener.Close()
	}
	for _, l := range *m.links.Load() {
		l.close()
	}
	m.wg.Wait()
	return <-accepted
}

// start runs f on a goroutine that Run waits for; false if the mesh is closed.
func (m *Mesh) start(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.wg.Go(f)
	return true
}

func (m *Mesh) link(peer int) *link { return (*m.links.Load())[peer] }

// Open creates links without streams to peers that have none. The first stream is opened for the first segment, or when
// the peer wants one; the others when a link has carried a megabyte in large segments. Both sides must call it.
func (m *Mesh) Open(peers []int) error {
	for _, peer := range peers {
		if _, err := m.open(peer); err != nil {
			return fmt.Errorf("open link to host %d: %w", peer, err)
		}
	}
	return nil
}

// Reach creates links to peers that have none and returns when each has a stream. Otherwise it is like Connect, and the
// links are as after Open.
func (m *Mesh) Reach(ctx context.Context, peers []int) error { return m.connect(ctx, peers, 1) }

// Connect creates links to peers that have none and returns when all of them have streams: all streams, or at least one
// after a moment. Both sides must call it. The error names the first peer without a stream and the reason; its link
// keeps trying until Forget.
func (m *Mesh) Connect(ctx context.Context, peers []int) error {
	return m.connect(ctx, peers, m.cfg.Streams)
}

func (m *Mesh) connect(ctx context.Context, peers []int, streams int) error {
	for _, peer := range peers {
		l, err := m.open(peer)
		if err != nil {
			return fmt.Errorf("connect to host %d: %w", peer, err)
		}
		l.want(streams)
	}
	var grace <-chan time.Time
	for {
		changed := m.changed.wait()
		missing, down, err := m.missing(peers)
		switch {
		case err != nil || missing == 0:
			return err
		case down < 0 && grace == nil:
			timer := time.NewTimer(m.cfg.FallbackDial)
			defer timer.Stop()
			grace = timer.C
		}
		select {
		case <-changed:
		case <-grace:
			if down < 0 {
				return nil
			}
			grace = nil
		case <-ctx.Done():
			if down < 0 {
				return nil
			}
			return fmt.Errorf("connect to host %d: %w", down, m.reason(down, context.Cause(ctx)))
		}
	}
}

// missing counts the streams that are not up. down is a peer without any, or -1.
func (m *Mesh) missing(peers []int) (missing, down int, err error) {
	down = -1
	for _, peer := range peers {
		l := m.link(peer)
		if l == nil {
			return 0, 0, fmt.Errorf("connect to host %d: %w", peer, errClosed)
		}
		l.mu.Lock()
		up, opened, lost, last := l.up, l.opened, l.lost, l.last
		l.mu.Unlock()
		switch {
		case lost != nil:
			return 0, 0, fmt.Errorf("connect to host %d: %w", peer, lost)
		case up == 0 && errors.Is(last, ErrKey):
			return 0, 0, fmt.Errorf("connect to host %d: %w", peer, last)
		case up == 0 && down < 0:
			down = peer
		}
		missing += opened - up
	}
	return missing, down, nil
}

// reason returns why there is no stream, as far as known.
func (m *Mesh) reason(peer int, err error) error {
	if l := m.link(peer); l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.last != nil {
			return fmt.Errorf("%w: %w", err, l.last)
		}
	}
	return err
}

// open makes the link to a peer, if there is none.
func (m *Mesh) open(peer int) (*link, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return nil, errClosed
	case peer == m.cfg.Self:
		return nil, errors.New("that is this host itself")
	}
	if l := m.link(peer); l != nil {
		return l, nil
	}
	m.opened++
	l := newLink(m, peer, m.opened)
	links := maps.Clone(*m.links.Load())
	links[peer] = l
	m.links.Store(&links)
	l.wg.Add(1)
	go l.keep()
	return l, nil
}

// Send sends s to a peer. It never blocks on the network, and may be called by Handlers and Owners. A segment for a
// peer without a link is dropped, without Acked.
//
// Segments are sent in the order of Send, except that segments of at most 4 KiB overtake longer ones. They arrive in
// any order.
func (m *Mesh) Send(peer int, s *Segment) {
	if l := m.link(peer); l != nil {
		l.send(s)
	}
}

// Forget ends the link to a peer: nothing is sent or acknowledged any more, and segments are dropped without Acked.
// When it returns, no stream of the peer touches memory of Owners or Handlers. Therefore they must not call it, nor may
// a caller hold a lock that they take.
func (m *Mesh) Forget(peer int) {
	m.mu.Lock()
	l := m.link(peer)
	if l == nil || m.closed { // Run closes the remaining links
		m.mu.Unlock()
		return
	}
	links := maps.Clone(*m.links.Load())
	delete(links, peer)
	m.links.Store(&links)
	m.mu.Unlock()
	l.close()
	l.mu.Lock()
	did := l.totals()
	l.mu.Unlock()
	m.mu.Lock()
	m.past.add(did)
	m.mu.Unlock()
	m.changed.notify()
	m.flushed.notify()
}

// Pin makes each goroutine that reads or writes a stream call f with the stream's number, once, before it continues: f
// may lock them to threads, and threads to CPUs.
func (m *Mesh) Pin(f func(stream int)) { m.pinned.Store(&f) }

// pin calls the function of Pin unless the goroutine has done so, and reports whether it did.
func (st *stream) pin(done **func(stream int)) bool {
	f := st.link.mesh.pinned.Load()
	if f == *done {
		return false
	}
	*done = f
	(*f)(st.index)
	return true
}

// Kick replaces all streams to a peer now, because the old ones may be dead without showing it: after a pause of the
// machine, or after an address has changed. Old streams stay up until the new ones are proven.
func (m *Mesh) Kick(peer int) {
	if l := m.link(peer); l != nil {
		l.renew(func(*stream) bool { return true })
	}
}

// Renew replaces, now, the streams to a peer whose addresses make stale return true, and all that are down: one of
// the addresses is no longer the host's.
func (m *Mesh) Renew(peer int, stale func(local, remote net.Addr) bool) {
	if l := m.link(peer); l != nil {
		l.renew(func(st *stream) bool {
			return st == nil || st.closed || stale(st.conn.LocalAddr(), st.conn.RemoteAddr())
		})
	}
}

// Reopen replaces a stream that Config.Upgrade has left as it was, because that may be different now. It returns false
// if there is no link to the peer.
func (m *Mesh) Reopen(peer, stream int) bool {
	l := m.link(peer)
	if l != nil {
		l.reopen(stream)
	}
	return l != nil
}

// HungUp returns the peers that have closed the last stream of their link, or whose machine refuses another one: most
// likely their process has ended. A broken network does not look like that.
func (m *Mesh) HungUp() []int {
	var peers []int
	for peer, l := range *m.links.Load() {
		l.mu.Lock()
		if l.hungUp {
			peers = append(peers, peer)
		}
		l.mu.Unlock()
	}
	return peers
}

// Awaited returns the peers that have not acknowledged everything, with when each last answered: by a byte, a
// handshake, or its kernel's acknowledgement of data in flight; the zero time for never. A peer that is only slow, or
// does not read for a while, still answers: its kernel does, and it keeps accepting streams. Two such answers may be a
// few seconds apart, as a stream without progress has four times ProgressTimeout. A peer counts as silent from the
// moment its link found that no packet size passes.
func (m *Mesh) Awaited() map[int]time.Time {
	peers := map[int]time.Time{}
	for peer, l := range *m.links.Load() {
		l.mu.Lock()
		if l.lost == nil && (l.out.win.held > 0 || l.out.queued() > 0) {
			at := l.watch.moved
			if heard := l.lastHeard(); heard.After(at) {
				at = heard
			}
			if !l.width.blocked.IsZero() {
				at = l.width.blocked // later answers do not matter
			}
			peers[peer] = at
		}
		l.mu.Unlock()
	}
	return peers
}

// Flush returns when the peers have everything that was sent to them, except the lost ones. A mesh that ends without it
// may lose data that the peers' kernels have not delivered yet.
func (m *Mesh) Flush(ctx context.Context) error {
	for {
		flushed := m.flushed.wait()
		var behind *link
		for _, l := range *m.links.Load() {
			if !l.empty() {
				behind = l
				break
			}
		}
		if behind == nil {
			return nil
		}
		select {
		case <-flushed:
		case <-ctx.Done():
			return fmt.Errorf("flush link to host %d: %w", behind.peer, context.Cause(ctx))
		}
	}
}

// Status is the state of a link.
type Status struct {
	Streams int       // that are up
	Heard   time.Time // when the last byte or handshake arrived; zero for never
	Unacked int       // segments in flight
	Queued  int       // segments that wait for a stream
	Err     error     // why a stream last broke or could not be opened; nil if all that are needed are up
	Lost    error     // see Config.Lost

	Totals
	Upgraded int // streams that are up and that Config.Upgrade has replaced the connection of

	// RTT is the shortest recent round trip of a stream, from the kernel or the device; 0 if unknown.
	RTT time.Duration
	// AckedBytes are what the peer's kernel or device has acknowledged, and SentAgain the packets that the kernel sent
	// again, of the streams that are up.
	AckedBytes, SentAgain uint64
}

// Status returns the state of the link to a peer; false if there is none.
func (m *Mesh) Status(peer int) (Status, bool) {
	l := m.link(peer)
	if l == nil {
		return Status{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status{Streams: l.up, Heard: l.lastHeard(), Unacked: l.out.win.held, Queued: l.out.queued(), Lost: l.lost, Totals: l.totals()}
	for _, sl := range l.slots {
		if st := sl.stream; st != nil && !st.closed {
			if st.upgraded != nil {
				s.Upgraded++
			}
			path := st.look()
			if path.rtt > 0 && (s.RTT == 0 || path.rtt < s.RTT) {
				s.RTT = path.rtt
			}
			s.AckedBytes, s.SentAgain = s.AckedBytes+path.delivered, s.SentAgain+path.resent
		}
	}
	if l.up < l.opened {
		s.Err = l.last
	}
	return s, true
}

// notice wakes all goroutines that wait for a change.
type notice struct {
	waiting atomic.Bool

	mu sync.Mutex
	ch chan struct{}
}

func newNotice() *notice { return &notice{ch: make(chan struct{})} }

// wait returns a channel that the next notify closes.
func (n *notice) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting.Store(true)
	return n.ch
}

func (n *notice) notify() {
	if !n.waiting.Load() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.ch)
	n.ch = make(chan struct{})
	n.waiting.Store(false)
}
