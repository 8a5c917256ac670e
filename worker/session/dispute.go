package session

import (
	"slices"
	"sync/atomic"
	"time"

	"gorun/collective"
	"gorun/collective/kernel"
)

// A rank that has brought its part to a lane, and computes, looks there again only when it waits for it. If another rank
// submits something else under the name, that comes to the daemon, and all would hear of the mismatch only when the last one has
// looked. So the daemon speaks for those in the lane: it knows what the lane is for. They find out how that ended
// when they hand their part in.

const (
	disputeAfter = 200 * time.Millisecond // who looks by itself has done so
	disputeEvery = 100 * time.Millisecond // whether all are there
)

// matter is what ranks must have in common.
type matter struct {
	kind      collective.Kind
	dtype     kernel.Type
	op        kernel.Op
	root      int
	pre, post float64
	shape     []int // constant
	coding    kernel.Coding
}

func (s *Server) matterOf(r *collective.Request) matter {
	return matter{r.Kind, r.Type, r.Op, r.Root, r.Pre, r.Post, r.Shape, s.cfg.Engine.CodingOf(*r)}
}

func (m *matter) equal(o *matter) bool {
	return m.kind == o.kind && m.dtype == o.dtype && m.op == o.op && m.root == o.root && m.pre == o.pre && m.post == o.post && m.coding == o.coding && slices.Equal(m.shape, o.shape)
}

// proxy is a part of a rank that the daemon hands in for it. It implements collective.Client.
type proxy struct {
	lanes *lanes
	err   error // once it has ended
	ended bool
	owner *session // that has come to hand the part in itself, before that
	o     *operation
}

type proxyKey struct {
	place int
	name  string
}

func (p *proxy) Complete(_ uint64, r collective.Result) {
	if r.Err == nil {
		r.Err = &collective.Error{Code: collective.CodeInternal, Text: "a part that differs from others was taken for the same"}
	}
	p.lanes.mu.Lock()
	p.err, p.ended = r.Err, true
	owner := p.owner
	p.lanes.mu.Unlock()
	if owner != nil {
		owner.turnDown(p.o, r.Err)
	}
}

// disputes reports whether a rank is the first that submits something else than what others may have brought to the lane
// of its name.
func (l *lanes) disputes(rank int, name string, mine matter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.names[name]
	if x == nil || x.offset == 0 || l.closed {
		return false
	}
	x.back |= 1 << l.place(rank)
	first := !x.disputed && !x.agreed.equal(&mine)
	x.disputed = x.disputed || first
	return first
}

// claim takes a part that the daemon has handed in for the rank that brings it now. The operation ends with it.
func (l *lanes) claim(s *session, o *operation, name string) bool {
	l.mu.Lock()
	key := proxyKey{l.place(s.rank), name}
	p := l.proxies[key]
	if p == nil { // as ever
		l.mu.Unlock()
		return false
	}
	delete(l.proxies, key)
	p.owner, p.o = s, o
	ended := p.ended
	l.mu.Unlock()
	if ended {
		s.turnDown(o, p.err)
	}
	return true
}

// absent returns proxies for the ranks whose parts of a name are in its lane, by their places, if all others have come to the
// daemon, and what the lane is for. Over says that there is nothing to wait for.
func (l *lanes) absent(name string, at int) (absent map[int]*proxy, agreed matter, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.names[name]
	if x == nil || x.offset != at || l.closed {
		return nil, matter{}, true
	}
	number := func(place, offset int) uint64 { return atomic.LoadUint64(word[uint64](l, at+place*laneLine+offset)) }
	least := number(0, 0)
	for place := range l.ranks {
		least = min(least, number(place, 0))
	}
	use := least/2 + 1 // that somebody has not come to
	absent = map[int]*proxy{}
	for place := range l.ranks {
		switch {
		case x.back>>place&1 != 0:
		case number(place, 0) < 2*use || number(place, laneDone) >= use:
			return nil, matter{}, false // it has yet to bring its part
		default:
			absent[place] = &proxy{lanes: l}
		}
	}
	for place, p := range absent {
		l.proxies[proxyKey{place, name}] = p
	}
	return absent, x.agreed, true
}

// settleDispute hands in what ranks have in the lane of a name that others have something else for.
func (s *Server) settleDispute(l *lanes, epoch uint32, name string) {
	l.mu.Lock()
	at := l.names[name].offset
	l.mu.Unlock()
	for wait := disputeAfter; ; wait = disputeEvery {
		time.Sleep(wait)
		absent, m, over := l.absent(name, at)
		if !over {
			continue
		}
		memory := make([]byte, m.bytes()) // of which nobody reads anything
		for place, p := range absent {
			err := s.cfg.Engine.Submit(l.ranks[place], collective.Request{Kind: m.kind, Name: name, Type: m.dtype, Op: m.op, Root: m.root,
				Pre: m.pre, Post: m.post, Coding: max(m.coding, kernel.CodingNone), Shape: m.shape, In: memory, Out: memory, Epoch: epoch, Client: p})
			if err != nil {
				p.Complete(0, collective.Result{Err: err})
			}
		}
		return
	}
}

func (m *matter) bytes() int {
	n, _ := bytesOf(m.shape, m.dtype)
	return int(n)
}

// inLanes reports whether operations of a kind have the names that lanes have.
func inLanes(k collective.Kind) bool {
	switch k {
	case collective.AddGroup, collective.RemoveGroup, collective.Join, collective.Send, collective.Recv:
		return false
	}
	return true
}
