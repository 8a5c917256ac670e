package collective_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/contrib/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// mesh joins engines in memory. Between each pair of hosts several streams take segments from one queue,
// in random order and each at its own pace, as the link may; what is small is copied when it is sent,
// and acknowledgements come late.
type mesh struct {
	t     *testing.T
	ends  []*end
	wg    sync.WaitGroup
	mu    sync.Mutex
	done  bool
	rng   *rand.Rand
	edges map[[2]int]*edge
	// refused counts the segments that Place refused.
	refused int
	// sent counts the bytes of data, without headers.
	sent int
	// hold, if set, keeps segments under way.
	hold func(from, to int, h link.Header) bool
	// mute keeps acknowledgements back.
	mute bool
}

type end struct {
	mesh    *mesh
	self    int
	handler link.Handler
}

type edge struct {
	wake  sync.Cond // of mesh.mu
	queue []letter
	acks  []*link.Segment
	busy  int // segments between queue and acks
}

type letter struct {
	s       *link.Segment
	payload []byte // set if copied
}

const streams = 2

func newMesh(t *testing.T, hosts int, seed uint64) *mesh {
	m := &mesh{t: t, rng: rand.New(rand.NewPCG(seed, 7)), edges: map[[2]int]*edge{}}
	for i := range hosts {
		m.ends = append(m.ends, &end{mesh: m, self: i})
	}
	return m
}

// run starts the streams, once every end has its handler.
func (m *mesh) run() {
	for from := range m.ends {
		for to := range m.ends {
			if from == to {
				continue
			}
			e := &edge{}
			e.wake.L = &m.mu
			m.edges[[2]int{from, to}] = e
			for range streams {
				m.wg.Go(func() { m.stream(from, to, e) })
			}
			m.wg.Go(func() { m.acks(e) })
		}
	}
}

func (m *mesh) close() {
	m.mu.Lock()
	m.done = true
	m.wakeAll()
	m.mu.Unlock()
	m.wg.Wait()
}

func (d *end) Send(peer int, s *link.Segment) {
	m := d.mesh
	m.mu.Lock()
	defer m.mu.Unlock()
	l := letter{s: s}
	if len(s.Payload) <= link.CopyLimit {
		l.payload = slices.Clone(s.Payload)
	}
	if s.Kind == link.Data {
		m.sent += len(s.Payload)
	}
	e := m.edges[[2]int{d.self, peer}]
	e.queue = append(e.queue, l)
	e.wake.Broadcast()
}

// next takes a letter that is not held back.
func (m *mesh) next(from, to int, e *edge) (letter, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for !m.done {
		var free []int
		for i, l := range e.queue {
			if m.hold == nil || !m.hold(from, to, l.s.Header) {
				free = append(free, i)
			}
			if len(free) == 8 {
				break
			}
		}
		if len(free) > 0 {
			i := free[m.rng.IntN(len(free))]
			l := e.queue[i]
			e.queue = slices.Delete(e.queue, i, i+1)
			e.busy++
			return l, true
		}
		e.wake.Wait()
	}
	return letter{}, false
}

func (m *mesh) stream(from, to int, e *edge) {
	handler := m.ends[to].handler
	for {
		l, ok := m.next(from, to, e)
		if !ok {
			return
		}
		h := l.s.Header
		payload := l.payload
		if len(payload) == 0 && len(l.s.Payload) > 0 {
			if l.s.Owner != nil {
				l.s.Owner.Prepare(l.s)
			}
			payload = l.s.Payload
		}
		if int(h.Length) != len(payload) {
			m.t.Errorf("segment %+v has %d bytes", h, len(payload))
		}
		dst, err := handler.Place(from, h)
		switch {
		case err != nil:
			m.mu.Lock()
			m.refused++
			m.mu.Unlock()
		default:
			if dst == nil {
				dst = make([]byte, len(payload))
			}
			if len(dst) != len(payload) {
				m.t.Errorf("segment %+v is placed into %d bytes", h, len(dst))
			}
			copy(dst, payload)
			handler.Deliver(from, h, dst)
		}
		m.mu.Lock()
		e.busy--
		e.acks = append(e.acks, l.s)
		e.wake.Broadcast()
		m.mu.Unlock()
	}
}

// acks acknowledges in batches, in random order.
func (m *mesh) acks(e *edge) {
	for {
		m.mu.Lock()
		for (len(e.acks) == 0 || m.mute) && !m.done {
			e.wake.Wait()
		}
		batch := e.acks
		e.acks = nil
		done := m.done
		m.rng.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
		m.mu.Unlock()
		for _, s := range batch {
			if s.Owner != nil {
				s.Owner.Acked(s)
			}
		}
		if done {
			return
		}
	}
}

// setHold changes what is held back.
func (m *mesh) setHold(f func(from, to int, h link.Header) bool) {
	m.mu.Lock()
	m.hold = f
	m.wakeAll()
	m.mu.Unlock()
}

// setMute keeps acknowledgements back, or not any more.
func (m *mesh) setMute(mute bool) {
	m.mu.Lock()
	m.mute = mute
	m.wakeAll()
	m.mu.Unlock()
}

// wakeAll has all streams look again. mu is held.
func (m *mesh) wakeAll() {
	for _, e := range m.edges {
		e.wake.Broadcast()
	}
}

// layout places ranks on hosts.
type layout [][]int

func (l layout) size() int {
	n := 0
	for _, ranks := range l {
		n += len(ranks)
	}
	return n
}

// even is a layout of hosts with the same number of ranks each, in order.
func even(hosts, ranks int) layout {
	l := make(layout, hosts)
	for r := range hosts * ranks {
		l[r/ranks] = append(l[r/ranks], r)
	}
	return l
}

// cluster is a world of engines in one process.
type cluster struct {
	t       *testing.T
	layout  layout
	mesh    *mesh
	engines []*collective.Engine
	hostOf  map[int]int
	// unsigned means that zeros come without sign.
	unsigned bool
}

func newCluster(t *testing.T, l layout, seed uint64, cfg collective.Config) *cluster {
	t.Helper()
	return newMixedCluster(t, l, seed, func(int) collective.Config { return cfg })
}

// newMixedCluster is a cluster whose hosts differ.
func newMixedCluster(t *testing.T, l layout, seed uint64, config func(host int) collective.Config) *cluster {
	t.Helper()
	c := &cluster{t: t, layout: l, mesh: newMesh(t, len(l), seed), hostOf: map[int]int{}, unsigned: config(0).Coding == kernel.CodingInt8}
	var hosts []collective.HostRanks
	for i, ranks := range l {
		hosts = append(hosts, collective.HostRanks{ID: i, Name: fmt.Sprintf("host%d", i+1), Ranks: ranks})
		for _, r := range ranks {
			c.hostOf[r] = i
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range l {
		cfg := config(i)
		cfg.Transport, cfg.Record = c.mesh.ends[i], true
		e := collective.New(cfg)
		must.Do(t, e.SetWorld(collective.EngineWorld{Epoch: 1, Hosts: hosts, Self: i, Size: l.size()}))
		c.mesh.ends[i].handler = e
		c.engines = append(c.engines, e)
		running.Go(func() {
			if err := e.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	c.mesh.run()
	t.Cleanup(func() {
		c.mesh.close()
		for _, e := range c.engines {
			e.Close()
		}
		cancel()
		running.Wait()
	})
	return c
}

func (c *cluster) engine(rank int) *collective.Engine { return c.engines[c.hostOf[rank]] }

// promise is the end of one request.
type promise struct {
	t    *testing.T
	what string
	ch   chan collective.Result
}

func (p *promise) Complete(handle uint64, r collective.Result) {
	r.Shape, r.Rows = slices.Clone(r.Shape), slices.Clone(r.Rows) // the engine's
	select {
	case p.ch <- r:
	default:
		p.t.Errorf("%s was completed twice", p.what)
	}
	if handle != 42 {
		p.t.Errorf("%s: handle %d came back", p.what, handle)
	}
}

func (p *promise) wait() collective.Result {
	p.t.Helper()
	select {
	case r := <-p.ch:
		p.ch <- r // so that a second completion is noticed
		return r
	case <-time.After(patience):
		p.t.Fatalf("%s did not end", p.what)
	}
	return collective.Result{}
}

// good waits for a result without error.
func (p *promise) good() collective.Result {
	p.t.Helper()
	r := p.wait()
	if r.Err != nil {
		p.t.Fatalf("%s: %v", p.what, r.Err)
	}
	return r
}

func ended(promises ...*promise) {
	for _, p := range promises {
		p.t.Helper()
		p.good()
	}
}

// Whole requests.
var (
	barrier = collective.Request{Kind: collective.Barrier, Name: "b"}
	join    = collective.Request{Kind: collective.Join}
)

// done reports whether the request ended.
func (p *promise) done() bool { return len(p.ch) > 0 }

// try submits and returns the refusal.
func (c *cluster) try(rank int, r collective.Request) (*promise, error) {
	p := &promise{t: c.t, what: fmt.Sprintf("%s %q of rank %d", r.Kind, r.Name, rank), ch: make(chan collective.Result, 1)}
	r.Handle, r.Client = 42, p
	if r.Pre == 0 {
		r.Pre = 1
	}
	if r.Post == 0 {
		r.Post = 1
	}
	return p, c.engine(rank).Submit(rank, r)
}

func (c *cluster) submit(rank int, r collective.Request) *promise {
	c.t.Helper()
	p, err := c.try(rank, r)
	if err != nil {
		c.t.Fatalf("submit %s: %v", p.what, err)
	}
	return p
}
