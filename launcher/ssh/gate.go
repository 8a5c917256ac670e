package ssh

import (
	"context"
	"sync"
)

// An sshd admits few connections that have not authenticated yet: with the default MaxStartups 10:30:100 it drops a
// third of them at random from the tenth on. So the gate admits at most perServer handshakes for one address, and atOnce
// for all together, which is what the processor can do anyway. Several addresses may lead to one sshd; that shows as
// dropped connections, and then the gate halves what it admits and grows back slowly, like TCP.
const (
	perServer = 8
	atOnce    = 32
	atLeast   = 2
)

type gate struct {
	mu      sync.Mutex
	limit   float64
	inUse   int
	servers map[string]*server
	queue   []*waiter
	cuts    int // how often limit was cut; tells drops of one burst from the next
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
}

func newGate() *gate {
	return &gate{limit: atOnce, servers: map[string]*server{}}
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
	g.leaveLocked(<-w.ready) // admitted in the same moment
	return nil, context.Cause(ctx)
}

// admitLocked lets in all that may enter, first come first served among those whose server has room.
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
		w.ready <- &pass{gate: g, server: s, cuts: g.cuts, mine: s.cuts}
	}
	clear(g.queue[len(kept):])
	g.queue = kept
}

func (g *gate) leaveLocked(p *pass) {
	g.inUse--
	p.server.inUse--
	g.admitLocked()
}

// done gives the place back; the server did not mind us.
func (p *pass) done() {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = min(atOnce, g.limit+1/g.limit)
	p.server.limit = min(perServer, p.server.limit+1/p.server.limit)
	g.leaveLocked(p)
}

// dropped gives the place back and slows down, once for all connections that were under way together.
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
