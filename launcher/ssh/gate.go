package ssh

import (
	"context"
	"sync"
	"time"
)

// An sshd admits few connections that have not authenticated yet: with the default MaxStartups 10:30:100 it drops a
// third of them at random from the eleventh on. So the gate admits at most perServer handshakes for one address, and
// atOnce for all together, which is what the processor can do anyway. An sshd that admits fewer, or that several
// addresses lead to, drops connections; then the gate halves its limits and raises them again slowly, like TCP.
//
// After hungAfter a handshake no longer counts against other addresses: any number of hosts may hang at login without
// blocking the rest.
const (
	perServer = 8
	atOnce    = 32
	atLeast   = 2
	hungAfter = 5 * time.Second
)

type gate struct {
	mu        sync.Mutex
	limit     float64
	inUse     int
	servers   map[string]*server // by address
	queue     []*waiter
	cuts      int           // how often limit was cut; distinguishes drops of one burst from the next
	hangAfter time.Duration // until a handshake counts as hung
}

type server struct {
	limit float64
	inUse int
	cuts  int
}

type waiter struct {
	key   string
	ready chan *pass // buffered, so that admitting never waits
}

// pass is permission for one handshake. Exactly one of done and dropped is called.
type pass struct {
	gate       *gate
	server     *server
	cuts, mine int // when it was admitted
	late       *time.Timer
	hung, left bool
}

func newGate(hangAfter time.Duration) *gate {
	return &gate{limit: atOnce, servers: map[string]*server{}, hangAfter: hangAfter}
}

// enter waits for permission to start a handshake with the server known as key.
func (g *gate) enter(ctx context.Context, key string) (*pass, error) {
	w := &waiter{key: key, ready: make(chan *pass, 1)}
	g.mu.Lock()
	g.queue = append(g.queue, w)
	g.admitLocked()
	g.mu.Unlock()
	select {
	case p := <-w.ready:
		return p, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, q := range g.queue {
		if q == w {
			g.queue = append(g.queue[:i], g.queue[i+1:]...)
			return nil, context.Cause(ctx)
		}
	}
	g.leaveLocked(<-w.ready) // admitted at the same moment
	return nil, context.Cause(ctx)
}

// admitLocked admits all that may enter, first come first served among those whose server has capacity.
func (g *gate) admitLocked() {
	if g.inUse >= int(g.limit) {
		return
	}
	kept := g.queue[:0]
	for _, w := range g.queue {
		s := g.servers[w.key]
		if s == nil {
			s = &server{limit: perServer}
			g.servers[w.key] = s
		}
		if g.inUse >= int(g.limit) || s.inUse >= int(s.limit) {
			kept = append(kept, w)
			continue
		}
		g.inUse++
		s.inUse++
		p := &pass{gate: g, server: s, cuts: g.cuts, mine: s.cuts}
		p.late = time.AfterFunc(g.hangAfter, p.hangs)
		w.ready <- p
	}
	clear(g.queue[len(kept):])
	g.queue = kept
}

func (g *gate) leaveLocked(p *pass) {
	p.late.Stop()
	p.left = true
	if !p.hung {
		g.inUse--
	}
	p.server.inUse--
	g.admitLocked()
}

// hangs stops counting the handshake for all addresses together. It still counts for its own.
func (p *pass) hangs() {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.left {
		return
	}
	p.hung = true
	g.inUse--
	g.admitLocked()
}

// done ends the handshake; the server did not drop it.
func (p *pass) done() {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = min(atOnce, g.limit+1/g.limit)
	p.server.limit = min(perServer, p.server.limit+1/p.server.limit)
	g.leaveLocked(p)
}

// dropped ends the handshake and slows down, once for all connections that were in progress together.
func (p *pass) dropped() {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.cuts == g.cuts {
		g.cuts++
		g.limit = max(atLeast, g.limit/2)
	}
	if p.mine == p.server.cuts {
		p.server.cuts++
		p.server.limit = max(1, p.server.limit/2)
	}
	g.leaveLocked(p)
}
