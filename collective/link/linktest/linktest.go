// Package linktest joins handlers in memory the way a link does, for tests of what runs above it:
// segments of a pair start in order and arrive in any, small payloads are copied by Send, and
// acknowledgements come late. Its goroutines end when there is nothing left to deliver; Close waits.
//
// It loses nothing and breaks no stream: that is the business of package link's own tests.
package linktest

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"gorun/collective/link"
)

// streams is how many goroutines deliver the segments of a directed pair.
const streams = 3

// Sender is one end: it sends to the handlers of the others.
type Sender struct {
	net   *network
	self  int
	pairs []*pair // by peer
}

type network struct {
	handlers []link.Handler

	mu  sync.Mutex
	rng *rand.Rand
}

// New returns n ends. The handlers may be filled in until the first Send.
func New(n int, seed int64, handlers []link.Handler) []*Sender {
	net := &network{handlers: handlers, rng: rand.New(rand.NewPCG(uint64(seed), 0))}
	ends := make([]*Sender, n)
	for i := range ends {
		ends[i] = &Sender{net: net, self: i, pairs: make([]*pair, n)}
		for j := range ends[i].pairs {
			ends[i].pairs[j] = &pair{net: net, from: i, to: j}
		}
	}
	return ends
}

// Send is Mesh.Send.
func (s *Sender) Send(peer int, seg *link.Segment) {
	seg.Length = uint32(len(seg.Payload))
	s.pairs[peer].send(seg)
}

// Forget drops what was not delivered to peer yet and returns when nothing of it is in use.
func (s *Sender) Forget(peer int) {
	s.pairs[peer].forget()
}

// Close waits until everything that was sent from this end was delivered and acknowledged.
func (s *Sender) Close() {
	for _, p := range s.pairs {
		p.busy.Wait()
	}
}

// pair is one direction between two ends.
type pair struct {
	net      *network
	from, to int
	busy     sync.WaitGroup // streams and acknowledgements at work

	mu        sync.Mutex
	queue     []letter
	running   int
	forgotten bool
}

type letter struct {
	seg    *link.Segment
	copied []byte // nil: the payload is read when it is delivered
	small  bool
}

func (p *pair) send(seg *link.Segment) {
	l := letter{seg: seg, small: len(seg.Payload) <= link.CopyLimit}
	if l.small {
		l.copied = slices.Clone(seg.Payload)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.forgotten {
		return
	}
	p.queue = append(p.queue, l)
	if p.running < streams {
		p.running++
		p.busy.Go(p.stream)
	}
}

func (p *pair) stream() {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			p.running--
			p.mu.Unlock()
			return
		}
		l := p.queue[0]
		p.queue = p.queue[1:]
		p.mu.Unlock()
		p.deliver(l)
	}
}

func (p *pair) deliver(l letter) {
	payload := l.copied
	if !l.small {
		if l.seg.Owner != nil {
			l.seg.Owner.Prepare(l.seg)
		}
		payload = l.seg.Payload
	}
	h, to := l.seg.Header, p.net.handlers[p.to]
	p.net.dawdle()
	dst, err := to.Place(p.from, h)
	if err == nil {
		if dst == nil {
			dst = make([]byte, len(payload))
		}
		if copy(dst, payload) != len(payload) || len(dst) != len(payload) {
			panic("linktest: Place returned a buffer of another length")
		}
		p.net.dawdle()
		to.Deliver(p.from, h, dst)
	}
	if l.seg.Owner == nil {
		return
	}
	p.busy.Go(func() {
		p.net.dawdle()
		p.mu.Lock()
		forgotten := p.forgotten
		p.mu.Unlock()
		if !forgotten {
			l.seg.Owner.Acked(l.seg)
		}
	})
}

func (p *pair) forget() {
	p.mu.Lock()
	p.forgotten, p.queue = true, nil
	p.mu.Unlock()
	p.busy.Wait()
}

// dawdle lets others overtake.
func (n *network) dawdle() {
	n.mu.Lock()
	turns := n.rng.IntN(4)
	if n.rng.IntN(16) == 0 {
		turns = 200
	}
	n.mu.Unlock()
	for range turns {
		runtime.Gosched()
	}
}
