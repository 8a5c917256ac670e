package link_test

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/contrib/must"
)

// proxy passes connections on until it is frozen; then existing ones stay open, but dead.
type proxy struct {
	ln     net.Listener
	target string
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool // no more connections
	conns  []net.Conn
	frozen chan struct{}             // closed when the connections of now are frozen
	passed []*atomic.Int64           // bytes from the dialer, by connection
	slow   func(i int) time.Duration // delay of every read of a connection, if set
	hold   hold
}

// hold returns when a connection may pass on the nth thing that its dialer, or the other side, has sent; nil is at
// once.
type hold func(conn int, dialer bool, nth int, said []byte)

// proxied returns two nodes, of which only the first one dials, through a proxy.
func proxied(t *testing.T, configure func(*link.Config), slow func(i int) time.Duration) ([]*node, *proxy) {
	nodes := apart(t, 2, configure)
	p := newProxy(t, nodes[1].addr(), slow)
	nodes[0].reach(1, p.ln.Addr().String())
	nodes[1].reach(0, "127.0.0.1:1")
	return nodes, p
}

func newProxy(t *testing.T, target string, slow func(i int) time.Duration) *proxy {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	p := &proxy{ln: ln, target: target, frozen: make(chan struct{}), slow: slow}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		ln.Close()
		p.freeze()
		p.mu.Lock()
		p.closed = true
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		a, err := p.ln.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", p.target)
		if err != nil {
			a.Close()
			continue
		}
		p.mu.Lock()
		if p.closed { // which was accepted just before
			p.mu.Unlock()
			a.Close()
			b.Close()
			return
		}
		p.conns = append(p.conns, a, b)
		frozen := p.frozen
		n := &atomic.Int64{}
		i := len(p.passed)
		p.passed = append(p.passed, n)
		hold := p.hold
		p.mu.Unlock()
		if hold == nil {
			hold = func(int, bool, int, []byte) {}
		}
		var delay time.Duration
		if p.slow != nil {
			a.(*net.TCPConn).SetReadBuffer(32 << 10)
			delay = p.slow(i)
		}
		wait := func(dialer bool) func(int, []byte) {
			return func(nth int, said []byte) {
				time.Sleep(delay)
				hold(i, dialer, nth, said)
			}
		}
		p.wg.Go(func() { pass(a, b, frozen, n, wait(true)) })
		p.wg.Go(func() { pass(b, a, frozen, &atomic.Int64{}, wait(false)) })
	}
}

func pass(from, to net.Conn, frozen chan struct{}, passed *atomic.Int64, wait func(nth int, said []byte)) {
	buf := make([]byte, 32<<10)
	for nth := 0; ; nth++ {
		n, err := from.Read(buf)
		passed.Add(int64(n))
		wait(nth, buf[:n])
		select {
		case <-frozen:
			return
		default:
		}
		if err == nil {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			from.Close()
			to.Close()
			return
		}
	}
}

// setHold is for connections that come from now on.
func (p *proxy) setHold(h hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = h
}

// freeze makes the present connections half-open: nothing passes, nothing is closed.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.frozen)
	p.frozen = make(chan struct{})
}

// damager damages some of what a proxy passes on: like a bad NIC it swaps two 16-bit words, or it flips a bit. It hits
// headers, acknowledgements and handshakes as well.
func damager(seed uint64, share float64, hits *atomic.Int64) hold {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0))
	return func(_ int, _ bool, _ int, said []byte) {
		mu.Lock()
		defer mu.Unlock()
		if rng.Float64() >= share || len(said) < 8 {
			return
		}
		hits.Add(1)
		if rng.IntN(4) == 0 {
			said[rng.IntN(len(said))] ^= 1 << rng.IntN(8)
			return
		}
		i, j := rng.IntN(len(said)/2)*2, rng.IntN(len(said)/2)*2
		said[i], said[i+1], said[j], said[j+1] = said[j], said[j+1], said[i], said[i+1]
	}
}
