package session

import (
	"slices"
	"sync/atomic"
	"time"

	"gorun/collective"
	"gorun/collective/kernel"
)

// A rank that has brought its part to a lane, and computes or waits for something else, looks there again only when it waits for
// it. If another rank brings its own part to the daemon instead, that one, and all that wait for it, would wait until the last
// has looked; and so would a rank that joins, for what it has in lanes. So the daemon hands in what is in the lane for those
// that are there: it knows what the lane is for. They find out how that ended when they hand their part in.

const (
	missedAfter = 200 * time.Millisecond // who looks by itself has done so
	missedEvery = 100 * time.Millisecond // whether all are there
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

func (m *matter) bytes() int {
	n, _ := bytesOf(m.shape, m.dtype)
	return int(n)
}

// missed is a use of a lane that somebody does not come to.
type missed struct {
	name  string
	at    int // of the lane
	use   uint64
	since time.Time
}

// proxy is a part of a rank that the daemon hands in for it. It implements collective.Client.
type proxy struct {
	lanes  *lanes
	key    proxyKey
	at     int // of the lane
	use    uint64
	matter matter
	memory []byte // its tensor, then the result

	result collective.Result // once it has ended
	ended  bool
	owner  *session // that has come to hand the part in itself, before that
	o      *operation
	out    []byte // where o has its result
	other  bool   // o is not what the rank has in the lane
}

type proxyKey struct {
	place int
	name  string
}

// Complete implements collective.Client.
func (p *proxy) Complete(_ uint64, r collective.Result) {
	if r.Err == nil { // the rank has not offered to take another lane, so it is told of none
		p.lanes.assign(p.lanes.ranks[p.key.place], p.key.name, false)
	}
	p.lanes.mu.Lock()
	p.result, p.ended = r, true
	if r.Err != nil {
		p.memory = nil
	}
	owned := p.owner != nil
	p.lanes.mu.Unlock()
	if owned {
		p.deliver()
	}
}

// deliver ends the operation with which the rank has handed its part in.
func (p *proxy) deliver() {
	switch {
	case p.result.Err != nil:
		p.owner.turnDown(p.o, p.result.Err)
	case p.other:
		p.owner.turnDown(p.o, invalid("submit %s: this rank has something else in the lane of that name", p.key.name))
	default:
		copy(p.out, p.memory)
		p.owner.Complete(uint64(p.o.handle), p.result)
	}
}

// miss notes that a rank brings its part of a name to the daemon, where others may have brought theirs to a lane. It reports
// whether somebody shall settle that (settleMissed), and nobody does.
func (l *lanes) miss(rank int, name string, mine matter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.names[name]
	if x == nil || x.offset == 0 || l.gone {
		return false
	}
	x.back |= 1 << l.place(rank)
	if x.isWide && x.agreed.equal(&mine) {
		return false // all in it wait for it, and so they look
	}
	return l.missLocked(x, name)
}

// missAll is miss for a rank that joined, and what it has in lanes.
func (l *lanes) missAll(debts []debt) (start bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range debts {
		if x := l.names[d.name]; x.offset == d.at && !x.isWide && !l.gone {
			start = l.missLocked(x, d.name) || start
		}
	}
	return start
}

func (l *lanes) missLocked(x *lane, name string) (start bool) {
	use := l.metLocked(x) + 1
	if x.missed == use {
		return false
	}
	x.missed = use
	l.missed = append(l.missed, missed{name, x.offset, use, time.Now()})
	return len(l.missed) == 1
}

// refuse takes back what miss noted of a part that the engine refused: others have nothing in a wide lane that could go with a
// right one.
func (l *lanes) refuse(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x := l.names[name]; x != nil && x.isWide && x.missed != 0 {
		x.missed = 0
		l.missed = slices.DeleteFunc(l.missed, func(m missed) bool { return m.name == name })
	}
}

// claim takes a part that the daemon has handed in for the rank that brings it now. The operation ends with it.
func (l *lanes) claim(s *session, o *operation, r *collective.Request) bool {
	mine := s.server.matterOf(r)
	l.mu.Lock()
	key := proxyKey{l.place(s.rank), r.Name}
	p := l.proxies[key]
	delete(l.proxies, key)
	if p == nil || atomic.LoadUint64(word[uint64](l, p.at+key.place*laneLine+laneDone)) >= p.use { // it gave that one up
		l.bringLocked(key.place, r.Name, l.names[r.Name]) // from here on nobody hands it in for the rank
		l.mu.Unlock()
		return false
	}
	p.owner, p.o, p.out = s, o, r.Out
	p.other = !p.matter.equal(&mine) || len(o.followers) > 0
	ended := p.ended
	l.mu.Unlock()
	if ended {
		p.deliver()
	}
	return true
}

// absent returns proxies for ranks whose parts are in lanes to which all others have come, or never will. It reports whether
// there are more lanes to settle.
func (l *lanes) absent(now time.Time) (absent []*proxy, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		l.missed = nil
	}
	still := l.missed[:0]
	for _, m := range l.missed {
		if now.Sub(m.since) >= missedAfter {
			proxies, over := l.absentLocked(&m)
			if absent = append(absent, proxies...); over {
				continue
			}
		}
		still = append(still, m)
	}
	clear(l.missed[len(still):])
	l.missed = still
	return absent, len(l.missed) > 0
}

func (l *lanes) absentLocked(m *missed) (absent []*proxy, over bool) {
	x := l.names[m.name]
	if x.offset != m.at {
		return nil, true
	}
	if use := l.metLocked(x) + 1; use != m.use { // all have come after all, but not who is back
		if x.back == 0 {
			return nil, true
		}
		m.use, x.missed = use, use
	}
	number := func(place, offset int) uint64 { return atomic.LoadUint64(word[uint64](l, m.at+place*laneLine+offset)) }
	var in []int // places
	for place := range l.ranks {
		switch {
		case x.back>>place&1 != 0:
		case number(place, 0) >= 2*m.use && number(place, laneDone) < m.use:
			in = append(in, place)
		case atomic.LoadUint32(word[uint32](l, place*laneLine+laneLeft)) != 0:
		default:
			return nil, false // it has yet to bring its part
		}
	}
	var nothing []byte // of which nobody reads anything: it goes in because there is something else, with which it does not agree
	if x.isWide && len(in) > 0 {
		nothing = make([]byte, x.agreed.bytes())
	}
	for _, place := range in {
		p := &proxy{lanes: l, key: proxyKey{place, m.name}, at: m.at, use: m.use, matter: x.agreed, memory: nothing}
		if !x.isWide {
			p.memory = slices.Clone(l.bufferLocked(x, place, m.use))
		}
		l.proxies[p.key] = p
		l.bringLocked(place, m.name, x)
		absent = append(absent, p)
	}
	return absent, true
}

// settleMissed hands in what ranks have in lanes that others do not come to.
func (s *Server) settleMissed(l *lanes, epoch uint32) {
	for more := true; more; {
		time.Sleep(missedEvery)
		more = s.settleRound(l, epoch)
	}
}

func (s *Server) settleRound(l *lanes, epoch uint32) (more bool) {
	l.handing.Lock()
	defer l.handing.Unlock()
	absent, more := l.absent(time.Now())
	for _, p := range absent {
		m := &p.matter
		err := s.cfg.Engine.Submit(l.ranks[p.key.place], collective.Request{Kind: m.kind, Name: p.key.name, Type: m.dtype, Op: m.op, Root: m.root,
			Pre: m.pre, Post: m.post, Coding: max(m.coding, kernel.CodingNone), Shape: m.shape, In: p.memory, Out: p.memory, Epoch: epoch, Client: p})
		if err != nil {
			p.Complete(0, collective.Result{Err: err})
		}
	}
	return more
}

// inLanes reports whether operations of a kind have the names that lanes have.
func inLanes(k collective.Kind) bool {
	switch k {
	case collective.AddGroup, collective.RemoveGroup, collective.Join, collective.Send, collective.Recv, collective.Peek:
		return false
	}
	return true
}
