// Package verbstest imitates RDMA in memory, with faults, for tests of what uses package verbs.
//
// A pair is always in the order that the specification demands; pairs have no order among each other. A write completes
// some time after it was posted, and until then reads the memory that it was posted with.
package verbstest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"

	"gorun/collective/verbs"
)

// Fabric connects the pairs of all its providers.
type Fabric struct {
	mu      sync.Mutex
	rng     *rand.Rand
	pairs   map[uint32]*pair
	next    uint32
	killed  int
	misused error
	down    bool
}

// New returns a fabric without pairs. Pairs of two fabrics have the same numbers only if the seeds are equal.
func New(seed uint64) *Fabric {
	return &Fabric{rng: rand.New(rand.NewPCG(seed, 0)), pairs: map[uint32]*pair{}, next: uint32(seed) << 12}
}

// Host returns what a host with an address has: one port of Ethernet.
func (f *Fabric) Host(addr netip.Addr) verbs.Provider { return host{f, addr.As16()} }

// Pairs returns how many pairs are open.
func (f *Fabric) Pairs() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pairs)
}

// Misused reports what a pair was used for that real ones forbid.
func (f *Fabric) Misused() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.misused
}

// Down makes all ports inactive, or active again. What is connected delivers no more, and gets an event.
func (f *Fabric) Down(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
	if down {
		f.happen(verbs.EventPort)
	}
}

// Happen makes an event of all connected pairs.
func (f *Fabric) Happen(event uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.happen(event)
}

// happen makes an event. mu is held.
func (f *Fabric) happen(event uint32) {
	for _, p := range f.pairs {
		if p.peer != nil && p.event == nil {
			p.event = &verbs.EventError{Event: event, Device: device, Port: 1}
			p.changed.Broadcast()
		}
	}
}

const device = "test0"

// Kill breaks a connected pair; its peer notices when it sends. It returns false if there is none.
func (f *Fabric) Kill() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pairs { // in any order
		if p.peer != nil && !p.failed {
			p.fail(verbs.StatusRetries)
			f.killed++
			return true
		}
	}
	return false
}

func (f *Fabric) misuse(format string, args ...any) {
	if f.misused == nil {
		f.misused = fmt.Errorf(format, args...)
	}
}

type host struct {
	*Fabric
	gid [16]byte
}

func (h host) Ports() ([]verbs.Port, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return []verbs.Port{{Device: device, Number: 1, Active: !h.down, Ethernet: true, MTU: 4096,
		GIDs: []verbs.GID{{Index: 0, Value: [16]byte{0xfe, 0x80}}, {Index: 1, Value: h.gid, RoCE2: true}}}}, nil
}

func (h host) Open(at verbs.Place, size verbs.Size) (verbs.Pair, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return nil, errors.New("the port is down")
	}
	h.next++
	p := &pair{fabric: h.Fabric, number: h.next, gid: at.GID.Value, depth: size.Depth,
		send: make([]byte, size.Ring), receive: make([]byte, size.Ring), rng: rand.New(rand.NewPCG(h.rng.Uint64(), 1))}
	p.changed.L = &h.mu
	h.pairs[p.number] = p
	p.device.Go(p.run)
	return p, nil
}

type posted struct {
	at, n int
	imm   uint32
}

type pair struct {
	fabric        *Fabric
	number        uint32
	gid           [16]byte
	depth         int
	send, receive []byte
	device        sync.WaitGroup
	rng           *rand.Rand

	// Guarded by fabric.mu.
	changed  sync.Cond
	peer     *verbs.End // nil before Connect
	receives int
	queue    []posted
	complete []verbs.Completion
	failed   bool
	event    *verbs.EventError // nil for none
	woken    bool
	closed   bool
}

func (p *pair) End() verbs.End {
	return verbs.End{Number: p.number, MTU: 4096, GID: p.gid, Ring: uint64(p.number) << 32, Key: p.number ^ 0xabcd}
}

func (p *pair) Rings() (send, receive []byte) { return p.send, p.receive }

func (p *pair) Connect(_ uint32, peer verbs.End, _ verbs.Tuning) error {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	if p.peer != nil || p.receives == 0 {
		p.fabric.misuse("pair %#x was connected twice, or without receives", p.number)
	}
	p.peer = &peer
	p.changed.Broadcast()
	return nil
}

func (p *pair) Receive(n int) error {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	if p.receives += n; p.receives > p.depth {
		p.fabric.misuse("%d receives posted, %d fit", p.receives, p.depth)
	}
	return nil
}

func (p *pair) Write(offset, length int, imm uint32) error {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	if p.closed || p.peer == nil || offset < 0 || length < 0 || offset+length > len(p.send) {
		p.fabric.misuse("write of %d bytes at %d of pair %#x, closed: %v", length, offset, p.number, p.closed)
		return errors.New("invalid write")
	}
	if p.failed {
		p.complete = append(p.complete, verbs.Completion{Status: verbs.StatusFlushed})
	} else if p.queue = append(p.queue, posted{offset, length, imm}); len(p.queue) > p.depth {
		p.fabric.misuse("%d writes posted, %d fit", len(p.queue), p.depth)
	}
	p.changed.Broadcast()
	return nil
}

// run is the device: it executes what was posted.
func (p *pair) run() {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	for !p.closed {
		if len(p.queue) == 0 || p.failed || p.fabric.down {
			p.changed.Wait()
			continue
		}
		for range p.rng.IntN(4) {
			p.fabric.mu.Unlock()
			runtime.Gosched()
			p.fabric.mu.Lock()
		}
		if len(p.queue) > 0 && !p.failed && !p.closed && !p.fabric.down {
			p.deliver(p.queue[0])
		}
	}
}

// deliver executes a write. fabric.mu is held.
func (p *pair) deliver(m posted) {
	to := p.fabric.pairs[p.peer.Number]
	switch {
	case to == nil || to.failed || to.peer == nil || to.peer.Number != p.number:
		p.fail(verbs.StatusRetries)
		return
	case p.peer.Key != to.End().Key || p.peer.Ring != to.End().Ring:
		p.fail(verbs.StatusRemoteAccess)
		return
	case to.receives == 0:
		p.fabric.misuse("pair %#x had no receive posted", to.number)
		p.fail(verbs.StatusNotReady)
		return
	}
	copy(to.receive[m.at:m.at+m.n], p.send[m.at:])
	to.receives--
	to.complete = append(to.complete, verbs.Completion{Receive: true, Bytes: m.n, Imm: m.imm})
	to.changed.Broadcast()
	p.queue = p.queue[1:]
	p.complete = append(p.complete, verbs.Completion{})
	p.changed.Broadcast()
}

// fail puts the pair into its error state: the oldest request fails with the status, all others are flushed. fabric.mu is
// held.
func (p *pair) fail(status uint32) {
	p.failed = true
	for range max(len(p.queue), 1) {
		p.complete = append(p.complete, verbs.Completion{Status: status})
		status = verbs.StatusFlushed
	}
	for range p.receives {
		p.complete = append(p.complete, verbs.Completion{Status: verbs.StatusFlushed, Receive: true})
	}
	p.queue, p.receives = nil, 0
	p.changed.Broadcast()
}

func (p *pair) Poll(into []verbs.Completion) (int, error) {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	n := copy(into, p.complete)
	p.complete = p.complete[n:]
	return n, nil
}

// errWoken ends Wait.
var errWoken = errors.New("woken")

func (p *pair) Wait() error {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	for len(p.complete) == 0 && !p.woken {
		p.changed.Wait()
	}
	if p.woken {
		return errWoken
	}
	return nil
}

func (p *pair) Event() error {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	for p.event == nil && !p.woken {
		p.changed.Wait()
	}
	if p.event != nil {
		return p.event
	}
	return errWoken
}

func (p *pair) Wake() {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	p.woken = true
	p.changed.Broadcast()
}

func (p *pair) Close() error {
	p.fabric.mu.Lock()
	if p.closed {
		p.fabric.misuse("pair %#x was closed twice", p.number)
	}
	p.closed = true
	delete(p.fabric.pairs, p.number)
	clear(p.send) // whoever still uses it finds other bytes
	clear(p.receive)
	p.changed.Broadcast()
	p.fabric.mu.Unlock()
	p.device.Wait()
	return nil
}
