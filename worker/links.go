package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"gorun/rendezvous/wire"
)

// How the links of a world are made: those that it needs before it begins, and in a large one the others later.

const (
	// fewHosts is how many hosts connect with each other by all streams before their world begins. In larger worlds each
	// host reaches its neighbours in the ring, and the others when it first sends them something, or some time later.
	fewHosts = 8
	// reachAfter is how long after the beginning of a world hosts look for others that they have nothing to say to: the
	// ranks have better use for the processors while they start.
	reachAfter = 10 * time.Second
	// linkPause is how long one waits after an attempt that failed at once.
	linkPause = 500 * time.Millisecond
)

// mesh is what makes links; *link.Mesh does.
type mesh interface {
	Open(peers []int) error
	Connect(ctx context.Context, peers []int) error
	Reach(ctx context.Context, peers []int) error
}

// linking makes the links of one world.
type linking struct {
	mesh   mesh
	self   int
	world  wire.World
	peers  []int // the other hosts
	needed []int // those to which there are links before the world begins
	judged bool  // by the launcher, who of the peers is lost: the others go on in another world

	// Otherwise a peer may stand still. After each timeout goOn takes that it was not reached, and returns whether to go on.
	timeout time.Duration
	goOn    func(err error) bool
}

func newLinking(m mesh, self int, w wire.World, judged bool, timeout time.Duration) *linking {
	l := &linking{mesh: m, self: self, world: w, judged: judged, timeout: timeout, goOn: func(error) bool { return false }}
	l.peers = slices.DeleteFunc(slices.Clone(w.Order), func(id int) bool { return id == self })
	l.needed = l.peers
	if l.large() {
		l.needed = around(w.Order, self, 1)
		for _, r := range w.Rings {
			l.needed = append(l.needed, around(r.Order, self, 1)...)
		}
	}
	return l
}

func (l *linking) large() bool { return len(l.world.Order) > fewHosts }

// begin makes the links that the world needs. Where the launcher judges who cannot be linked, one goes on trying until the end of
// ctx, which is that of the world: a stranger may have answered at the peer's address, or a peer that was not ready.
func (l *linking) begin(ctx context.Context) error {
	for !l.judged {
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

// connect makes the links that the world needs, and has those to the other peers of a large one made later.
func (l *linking) connect(ctx context.Context) error {
	if !l.large() {
		return l.mesh.Connect(ctx, l.peers)
	}
	if err := l.mesh.Open(l.peers); err != nil {
		return err
	}
	return l.mesh.Reach(ctx, l.needed)
}

// rest makes sure, once a large world has begun, that its hosts reach each other, nearest first: so both ends of a
// link come to it at about the same time. A host that is silent is not its affair, so its timeout is longer than it takes
// to find such a host. It tells cut of peers that it does not reach.
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
		if cut(peers, err); !l.judged {
			return
		}
	}
}

// around returns the hosts that are so many steps away in the ring: two, or one if that is the opposite host.
func around(order []int, self, steps int) []int {
	at, n := slices.Index(order, self), len(order)
	next, previous := order[(at+steps)%n], order[(at+n-steps)%n]
	if next == previous {
		return []int{next}
	}
	return []int{next, previous}
}

// life is how long a world lasts, from the proposal until the next roster. What makes its links ends with it, since peers that
// are in no world any more are to have none.
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

// stop ends it, and returns when nothing of it runs.
func (l *life) stop() {
	if l != nil {
		l.end()
		l.wg.Wait()
	}
}
