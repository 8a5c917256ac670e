package link_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/collective/link"
	"gorun/collective/tcp"
	"gorun/contrib/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

var testKey = bytes.Repeat([]byte{7}, 32)

// node is a mesh with everything around it.
type node struct {
	t       testing.TB
	id      int
	mesh    *link.Mesh
	ln      *recorder
	inbox   *inbox
	lost    chan error
	stop    context.CancelFunc
	stopped chan struct{}

	mu    sync.Mutex
	route map[int]string // peer's address
}

// recorder remembers connections, so that tests can break them.
type recorder struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (r *recorder) add(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, c)
}

func (r *recorder) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err == nil {
		r.add(c)
	}
	return c, err
}

// pick removes and returns the i-th connection, counted around.
func (r *recorder) pick(i int) net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.conns) == 0 {
		return nil
	}
	i %= len(r.conns)
	c := r.conns[i]
	r.conns = append(r.conns[:i], r.conns[i+1:]...)
	return c
}

// closeAll closes all connections.
func (r *recorder) closeAll() {
	for c := r.pick(0); c != nil; c = r.pick(0) {
		c.Close()
	}
}

func newNode(t testing.TB, id int, configure func(*link.Config)) *node {
	t.Helper()
	n := &node{t: t, id: id, route: map[int]string{}, lost: make(chan error, 8), stopped: make(chan struct{})}
	n.inbox = &inbox{t: t, self: id, got: map[uint64]int{}}
	ln, err := tcp.Options{}.Listen(t.Context(), "127.0.0.1:0")
	must.Do(t, err)
	n.ln = &recorder{Listener: ln}
	cfg := link.Config{
		Self: id, Job: "job", Key: testKey, Handler: n.inbox, Listener: n.ln, Dial: n.dial,
		Lost:       func(_ int, err error) { n.lost <- err },
		BackoffMax: 50 * time.Millisecond, FallbackDial: 100 * time.Millisecond,
	}
	if configure != nil {
		configure(&cfg)
	}
	if n.mesh, err = link.NewMesh(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = func() { cancel(); <-n.stopped }
	go func() {
		defer close(n.stopped)
		if err := n.mesh.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(n.stop)
	return n
}

func (n *node) dial(ctx context.Context, peer, _ int) (net.Conn, error) {
	n.mu.Lock()
	addr := n.route[peer]
	n.mu.Unlock()
	c, err := tcp.Options{}.Dial(ctx, []string{addr})
	if err == nil {
		n.ln.add(c)
	}
	return c, err
}

func (n *node) reach(peer int, addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.route[peer] = addr
}

func (n *node) addr() string { return n.ln.Addr().String() }

func (n *node) status(peer int) link.Status {
	s, _ := n.mesh.Status(peer)
	return s
}

// full waits until all streams to a peer are up.
func (n *node) full(peer int) {
	n.t.Helper()
	must.Soon(n.t, "all streams", func() bool { return n.status(peer).Streams == 4 })
}

// newNodes returns n nodes that are connected with each other.
func newNodes(t testing.TB, n int, configure func(*link.Config)) []*node {
	t.Helper()
	nodes := apart(t, n, configure)
	join(t, nodes...)
	return nodes
}

// apart returns n nodes that know each other's addresses.
func apart(t testing.TB, n int, configure func(*link.Config)) []*node {
	t.Helper()
	var nodes []*node
	for i := range n {
		nodes = append(nodes, newNode(t, i, configure))
	}
	for _, a := range nodes {
		for _, b := range nodes {
			a.reach(b.id, b.addr())
		}
	}
	return nodes
}

func join(t testing.TB, nodes ...*node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wg sync.WaitGroup
	for _, a := range nodes {
		wg.Go(func() {
			var peers []int
			for _, b := range nodes {
				if a != b {
					peers = append(peers, b.id)
				}
			}
			if err := a.mesh.Connect(ctx, peers); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// noise holds the payloads; op decides where each begins.
var noise = func() []byte {
	p := make([]byte, 2<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], rng.Uint64())
	}
	return p
}()

func pattern(op uint64, n int) []byte {
	at := int(op * 7919 % (1 << 20))
	return noise[at : at+n]
}

// inbox is a Handler that checks what comes.
type inbox struct {
	t    testing.TB
	self int

	delivered, placed atomic.Int64

	mu      sync.Mutex
	got     map[uint64]int // by peer<<32 | op
	refuse  func(h link.Header) bool
	deliver func(peer int, h link.Header, p []byte)
}

func (b *inbox) set(refuse func(link.Header) bool, deliver func(int, link.Header, []byte)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse, b.deliver = refuse, deliver
}

func (b *inbox) Place(peer int, h link.Header) ([]byte, error) {
	b.mu.Lock()
	refuse := b.refuse
	b.mu.Unlock()
	if refuse != nil && refuse(h) {
		return nil, fmt.Errorf("not wanted")
	}
	b.placed.Add(1)
	if h.Op%2 == 0 {
		return make([]byte, h.Length), nil
	}
	return nil, nil
}

func (b *inbox) Deliver(peer int, h link.Header, p []byte) {
	if !bytes.Equal(p, pattern(h.Op, int(h.Length))) {
		b.t.Errorf("host %d: segment %d of host %d is damaged", b.self, h.Op, peer)
	}
	b.mu.Lock()
	key := uint64(peer)<<32 | h.Op
	b.got[key]++
	if b.got[key] > 1 {
		b.t.Errorf("host %d: segment %d of host %d came %d times", b.self, h.Op, peer, b.got[key])
	}
	deliver := b.deliver
	b.mu.Unlock()
	if deliver != nil {
		deliver(peer, h, p)
	}
	b.delivered.Add(1)
}

// outbox is an Owner that sends numbered segments and sees what becomes of them.
type outbox struct {
	t        testing.TB
	prepared sync.Map
	acked    atomic.Int64
	limit    chan struct{} // segments under way
}

func (o *outbox) Prepare(s *link.Segment) {
	if len(s.Payload) <= link.CopyLimit || s.Kind == link.Control {
		o.t.Errorf("prepared a segment of kind %d and %d bytes", s.Kind, len(s.Payload))
	}
	if _, twice := o.prepared.LoadOrStore(s, true); twice {
		o.t.Error("prepared a segment twice")
	}
	copy(s.Payload, pattern(s.Op, len(s.Payload)))
}

func (o *outbox) Acked(s *link.Segment) {
	clear(s.Payload) // it is ours again
	o.prepared.Delete(s)
	o.acked.Add(1)
	if o.limit != nil {
		<-o.limit
	}
}

func (o *outbox) send(m *link.Mesh, peer int, op uint64, n int) {
	s := &link.Segment{Header: link.Header{Kind: link.Data, Op: op, Epoch: 1}, Payload: make([]byte, n), Owner: o}
	if op%5 == 0 {
		s.Flags |= link.FlagAckNow
	}
	if op%3 == 0 {
		s.Kind = link.Control
	}
	if n <= link.CopyLimit || s.Kind == link.Control {
		copy(s.Payload, pattern(op, n))
	}
	if o.limit != nil {
		o.limit <- struct{}{}
	}
	m.Send(peer, s)
	if n <= link.CopyLimit {
		clear(s.Payload) // it was copied
	}
}

// length varies the sizes of segments across everything that takes another path.
func length(op uint64) int {
	sizes := [...]int{0, 1, 63, 64, 512, 513, 4096, 4097, 16 << 10, 16<<10 + 1, 64<<10 - 64, 64<<10 - 63, 64 << 10, 100_000, 260_001}
	return sizes[op*0x9e3779b97f4a7c15>>33%uint64(len(sizes))]
}

func TestSegmentsArriveOnce(t *testing.T) {
	for _, c := range []struct {
		name      string
		nodes     int
		configure func(*link.Config)
	}{
		{"two", 2, nil},
		{"three", 3, nil},
		{"one stream", 2, func(c *link.Config) { c.Streams = 1 }},
		{"small window", 2, func(c *link.Config) { c.Window = 3 }},
		{"checked", 2, func(c *link.Config) { c.Check = true }},
		{"encrypted", 2, func(c *link.Config) { c.Encrypt = true }},
		{"no sockets", 2, func(c *link.Config) {
			dial := c.Dial
			c.Dial = func(ctx context.Context, peer, stream int) (net.Conn, error) {
				conn, err := dial(ctx, peer, stream)
				return plain{conn}, err
			}
			c.Listener = plainListener{c.Listener}
		}},
		{"rare acknowledgements", 2, func(c *link.Config) { c.AckBytes, c.AckSegments = 1<<30, 1000 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := newNodes(t, c.nodes, func(cfg *link.Config) {
				cfg.ProgressTimeout = time.Hour // a stream that is stuck because the machine is busy is not replaced
				if c.configure != nil {
					c.configure(cfg)
				}
			})
			const count = 160
			out := &outbox{t: t}
			var wg sync.WaitGroup
			for _, a := range nodes {
				for _, b := range nodes {
					if a == b {
						continue
					}
					wg.Go(func() {
						for op := range uint64(count) {
							out.send(a.mesh, b.id, op, length(op))
						}
					})
				}
			}
			wg.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for _, a := range nodes {
				must.Do(t, a.mesh.Flush(ctx))
			}
			each := int64(count * (c.nodes - 1))
			must.Soon(t, "all owners know", func() bool { return out.acked.Load() == each*int64(c.nodes) })
			for _, a := range nodes {
				must.Soon(t, "all is delivered", func() bool { return a.inbox.delivered.Load() == each })
				s, ok := a.mesh.Status((a.id + 1) % c.nodes)
				if !ok || s.Unacked != 0 || s.Queued != 0 || s.Heard.IsZero() {
					t.Errorf("status %+v", s)
				}
				// On a busy machine both sides may dial, and a stream be replaced: what was on it comes again.
				if s.ResentSegments != 0 && s.Attached <= uint64(s.Streams) {
					t.Errorf("segments were sent again, and no stream was replaced: status %+v", s)
				}
			}
		})
	}
}

// plain is a connection that is no socket, as TLS is.
type plain struct{ net.Conn }

type plainListener struct{ net.Listener }

func (l plainListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return plain{c}, nil
}

func TestRefusedSegmentsAreAcknowledged(t *testing.T) {
	nodes := newNodes(t, 2, nil)
	nodes[1].inbox.set(func(h link.Header) bool { return h.Op%3 == 0 }, nil)
	out := &outbox{t: t}
	for op := range uint64(30) {
		out.send(nodes[0].mesh, 1, op, length(op))
	}
	must.Soon(t, "all acknowledged", func() bool { return out.acked.Load() == 30 })
	must.Soon(t, "the others delivered", func() bool { return nodes[1].inbox.delivered.Load() == 20 })
}

func TestSendFromDeliver(t *testing.T) {
	nodes := newNodes(t, 2, nil)
	out := &outbox{t: t}
	const count = 500
	nodes[1].inbox.set(nil, func(peer int, h link.Header, _ []byte) { out.send(nodes[1].mesh, peer, h.Op, int(h.Length)) })
	nodes[0].inbox.set(nil, func(peer int, h link.Header, _ []byte) {
		if h.Op+1 < count {
			out.send(nodes[0].mesh, peer, h.Op+1, length(h.Op+1)%20000)
		}
	})
	out.send(nodes[0].mesh, 1, 0, 10)
	must.Soon(t, "the last answer", func() bool { return nodes[0].inbox.delivered.Load() == count })
	must.Soon(t, "all acknowledged", func() bool { return out.acked.Load() == 2*count })
}

func TestSendWithoutLinkIsDropped(t *testing.T) {
	n := newNode(t, 0, nil)
	out := &outbox{t: t}
	out.send(n.mesh, 5, 1, 100)
	if _, ok := n.mesh.Status(5); ok {
		t.Error("there is a link")
	}
	if err := n.mesh.Flush(t.Context()); err != nil {
		t.Error(err)
	}
}

// A small segment does not wait for the large ones before it.
func TestSmallSegmentsOvertake(t *testing.T) {
	for _, streams := range []int{1, 2, 4} {
		nodes := newNodes(t, 2, func(c *link.Config) { c.Streams = streams })
		const large = 120
		var before atomic.Int64
		before.Store(-1)
		queued := make(chan struct{})
		nodes[1].inbox.set(nil, func(_ int, h link.Header, p []byte) {
			if len(p) == 100 {
				before.Store(nodes[1].inbox.delivered.Load())
			} else {
				<-queued // until then, what does not fit into the sockets waits
			}
		})
		out := &outbox{t: t}
		for op := range uint64(large) {
			out.send(nodes[0].mesh, 1, op, 200<<10)
		}
		out.send(nodes[0].mesh, 1, large, 100)
		close(queued)
		must.Soon(t, "all acknowledged", func() bool { return out.acked.Load() == large+1 })
		must.Soon(t, "all delivered", func() bool { return nodes[1].inbox.delivered.Load() == large+1 })
		if n := before.Load(); n > large*3/4 {
			t.Errorf("%d streams: the small segment came after %d large ones", streams, n)
		}
	}
}
