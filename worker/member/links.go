package member

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"gorun/rendezvous/wire"
)

// How a world makes its links: before it begins it makes the links that it needs, and later, in a large one, the rest.

const (
	// fewHosts is how many hosts connect with each other by all streams before their world begins. In larger worlds
	// each host reaches its neighbours in the ring, and the others when it first sends them something, or some time
	// later.
	fewHosts = 8
	// reachAfter is how long after a world has begun hosts reach others that they have nothing to send to: while ranks
	// start, they need the processors.
	reachAfter = 10 * time.Second
	// linkPause is the pause after an attempt that failed at once.
	linkPause = 500 * time.Millisecond
)

// linker makes links, as link.Mesh does.
type linker interface {
	// Open prepares links to peers: their streams are opened for the first segment.
	Open(peers []int) error
	// Connect makes links to peers with all of their streams.
	Connect(ctx context.Context, peers []int) error
	// Reach makes links to peers with a stream each.
	Reach(ctx context.Context, peers []int) error
}

// linking makes the links of one world.
type linking struct {
	mesh    linker
	self    int
	world   wire.World
	peers   []int // the other hosts
	needed  []int // peers that need links before the world begins
	elastic bool  // the launcher decides which peers are lost, and the others go on in another world

	// In a job of fixed size goOn is called after each timeout, since a peer may be paused, and returns whether to go
	// on.
	timeout time.Duration
	goOn    func(err error) bool
}

func newLinking(m linker, self int, w wire.World, elastic bool, timeout time.Duration) *linking {
	l := &linking{mesh: m, self: self, world: w, elastic: elastic, timeout: timeout}
	l.goOn = func(error) bool { return false }
	l.peers = slices.DeleteFunc(slices.Clone(w.Order), func(id int) bool { return id == self })
	l.needed = l.peers
	if l.large() {
		l.needed = around(w.Order, self, 1)
	}
	return l
}

func (l *linking) large() bool { return len(l.world.Order) > fewHosts }

// begin makes the links that the world needs. In an elastic job it tries until ctx, and so the world, ends: another
// process may have answered at the peer's address, or a peer that was not ready.
func (l *linking) begin(ctx context.Context) error {
	for !l.elastic {
		limit, cancel := context.WithTimeout(ctx, l.timeout)
		err := l.connect(limit)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !l.goOn(err) {
			return err
		}
	}
	for {
		err := l.connect(ctx)
		if err == nil {
			return nil
		}
		pause := time.NewTimer(linkPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// connect makes the links that the world needs. A large world makes its other links later.
func (l *linking) connect(ctx context.Context) error {
	if !l.large() {
		return l.mesh.Connect(ctx, l.peers)
	}
	if err := l.mesh.Open(l.peers); err != nil {
		return err
	}
	return l.mesh.Reach(ctx, l.needed)
}

// rest makes sure, once a large world has begun, that its hosts reach each other, nearest first, so that both ends of
// a link come to it at about the same time. It calls cut with peers that it does not reach. The timeout is longer
// than it takes to find a silent host, which others deal with.
func (l *linking) rest(ctx context.Context, timeout time.Duration, cut func(peers []int, err error)) {
	for steps := 2; steps <= len(l.world.Order)/2; steps++ {
		peers := around(l.world.Order, l.self, steps)
		limit, cancel := context.WithTimeout(ctx, timeout)
		err := l.mesh.Reach(limit, peers)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			continue
		}
		if cut(peers, err); !l.elastic {
			return
		}
	}
}

// around returns the hosts that are a number of steps away in the ring: two, or one if it is opposite.
func around(order []int, self, steps int) []int {
	at, n := slices.Index(order, self), len(order)
	next, previous := order[(at+steps)%n], order[(at+n-steps)%n]
	if next == previous {
		return []int{next}
	}
	return []int{next, previous}
}

// life is how long a world lasts, from the proposal until the next roster. What makes its links ends with it, because
// peers that are no longer in a world get none.
type life struct {
	ctx context.Context
	end context.CancelFunc
	wg  sync.WaitGroup
}

func newLife(ctx context.Context) *life {
	l := &life{}
	l.ctx, l.end = context.WithCancel(ctx)
	return l
}

// stop ends the life, and returns when nothing of it runs.
func (l *life) stop() {
	if l != nil {
		l.end()
		l.wg.Wait()
	}
}
