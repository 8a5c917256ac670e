package collective

import (
	"time"

	"gorun/collective/link"
	"gorun/collective/schedule"
)

// The way of a segment, and whose goroutine does it:
//
//	queue    starter, or whoever finished what the segment waits for: header, payload, Transport.Send
//	Prepare  a stream, right before the wire: the own part is reduced from the ranks' inputs
//	Place    a stream of the peer: where results and parts are read to
//	deliver  the same: reduce with the inputs while hot, copy to the other ranks, queue what waits for it
//	Acked    any stream: the memory is free
//
// Bytes moved for a ring over H hosts with P ranks each and n bytes, beyond the wire: every input is
// read once and every output written once; a partial is written and read once per hop, from cache when a
// segment fits.

// ackNowBelow is how many of the last segments to a peer ask for an acknowledgement at once, if a rank
// waits for it: nobody knows which of several streams finishes last.
const ackNowBelow = 4

// start runs an op that all hosts agreed on.
func (o *op) start() {
	o.began = time.Now()
	if len(o.group.hosts) == 1 {
		o.startLocal()
		return
	}
	for o.layout(); o.late; o.layout() {
		if o.engine.detours.wait(o) {
			return
		}
	}
	o.mu.Lock()
	if o.dead { // aborted since the verdict
		o.mu.Unlock()
		if o.buffer != nil {
			o.buffer.Release()
		}
		return
	}
	o.started = true
	stash := o.stash
	o.mu.Unlock()
	for i := range o.steps {
		if o.steps[i].Do == schedule.Part {
			o.queueAll(i)
		}
	}
	if o.inWords && o.enter() {
		o.addParts()
		o.leave()
	}
	if o.kind == Alltoall && o.enter() {
		o.exchange(0, o.size)
		o.leave()
	}
	for _, s := range stash {
		o.deliver(s.peer, s.header, *s.payload)
		o.engine.buffers.Put(s.payload)
	}
	o.mu.Lock()
	o.unstash()
	o.remaining--
	o.settle()
}

// after sets free what waited for the segment at lo of step i, or for the last one of the step: sends first,
// because a merge may write what they read.
func (o *op) after(i int, lo int64) {
	if o.climbs() {
		o.ascend(i)
		return
	}
	if o.kind == Alltoall {
		return // nothing is passed on, and there are many steps
	}
	s := &o.steps[i]
	o.mu.Lock()
	o.undone[i]--
	whole := o.undone[i] == 0
	o.mu.Unlock()
	for j := i + 1; j < len(o.steps); j++ {
		switch w := &o.steps[j]; {
		case w.Do != schedule.Send || w.After != i:
		case w.Lo == s.Lo && w.Hi == s.Hi:
			o.queue(j, lo)
		case whole:
			o.queueAll(j)
		}
	}
	if o.chained {
		o.catchUp(i, lo)
	}
}

// queueAll queues all segments of a sending step.
func (o *op) queueAll(i int) {
	for lo := o.steps[i].Lo; lo < o.steps[i].Hi; lo += o.cut {
		o.queue(i, lo)
	}
}

// queue hands the segment at lo of a sending step to the link.
func (o *op) queue(i int, lo int64) {
	s := &o.steps[i]
	hi := min(lo+o.cut, s.Hi)
	p := o.engine.pieces.Get().(*piece)
	p.op, p.step, p.made = o, i, s.Do != schedule.Part
	p.Header = link.Header{Kind: link.Data, Step: s.Tag, Epoch: o.epoch, Op: o.id, Gen: o.gen,
		Offset: uint64(lo)}
	p.Rail = int(s.Ring)
	p.Payload = o.payload(i, lo, hi)
	p.Length = uint32(len(p.Payload))
	// A small payload is copied by the link as it is sent, so it must be there, and its memory is free.
	small := len(p.Payload) <= link.CopyLimit
	peer, made := o.group.hosts[s.Peer].ID, p.made
	p.held = o.holder != nobody && !small

	o.mu.Lock()
	if o.dead {
		o.mu.Unlock()
		o.engine.release(p)
		return
	}
	o.inflight++
	if p.held {
		o.unacked++
	}
	o.queued[s.Peer]--
	if o.holder != nobody && (o.size > link.CopyLimit || o.holder == everybody) && o.queued[s.Peer] < ackNowBelow {
		p.Flags |= link.FlagAckNow
	}
	o.mu.Unlock()
	if made || !small {
		o.engine.transport.Send(peer, &p.Segment)
		return
	}
	p.made = true
	if !o.enter() {
		return // aborted meanwhile
	}
	o.make(i, lo, hi)
	o.engine.transport.Send(peer, &p.Segment)
	o.after(i, lo)
	o.leave()
}

// payload returns the bytes [lo, hi) as the i-th step sends them.
func (o *op) payload(i int, lo, hi int64) []byte {
	s := &o.steps[i]
	switch {
	case o.climbs():
		return o.climb.vector(o.climb.places[i], o.size)[lo:hi]
	case o.kind == Alltoall:
		return o.ins[o.source[i]][o.base[i]+lo : o.base[i]+hi]
	case len(o.slots) > 0:
		return o.part(o.group.self, lo, hi)
	case o.coded.on():
		return o.imageOf(lo, hi)
	case o.raw != nil && s.Do == schedule.Part:
		return o.raw[lo:hi]
	}
	return o.acc[lo:hi]
}

// part returns where the bytes [lo, hi) of the part of a position are collected.
func (o *op) part(pos int, lo, hi int64) []byte {
	at := int64(pos)*o.slot + o.length(lo)
	end := at + o.length(hi-lo)
	return o.slots[at:end:end]
}

// piece is a data segment and what the op must know when it is on its way.
type piece struct {
	link.Segment
	op   *op
	step int
	made bool // the payload is there
	held bool // the payload is the holder's memory
}

// Prepare makes the own part of the payload and queues what else is sent of it.
func (p *piece) Prepare(*link.Segment) {
	if p.made {
		return
	}
	p.made = true
	o := p.op
	if !o.enter() {
		return
	}
	lo := int64(p.Offset)
	o.make(p.step, lo, min(lo+o.cut, o.steps[p.step].Hi))
	o.after(p.step, lo)
	o.leave()
}

// Acked frees the payload.
func (p *piece) Acked(*link.Segment) {
	o, held := p.op, p.held
	o.engine.release(p)
	o.mu.Lock()
	o.inflight--
	if held {
		o.unacked--
	}
	o.settle()
}

// enter begins work of an op that was counted in remaining; false if the op was aborted.
func (o *op) enter() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead {
		return false
	}
	o.busy++
	return true
}

// leave ends what enter began.
func (o *op) leave() {
	o.mu.Lock()
	o.busy--
	o.remaining--
	o.settle()
}

// make computes the host's own part of [lo, hi).
func (o *op) make(step int, lo, hi int64) {
	switch {
	case o.kind == Alltoall || o.climbs(): // sent as it is
	case o.kind == Broadcast:
		o.copyOut(lo, hi)
	case o.kind == Allgather:
		rank := o.source[step]
		at := o.starts[rank]
		copy(o.acc[lo:hi], o.ins[rank][lo-at:hi-at])
	case len(o.slots) > 0 && o.coded.on():
		o.makeCoded(o.part(o.group.self, lo, hi), lo, hi)
		o.collected(lo, hi)
	case o.coded.on():
		o.makeCoded(o.imageOf(lo, hi), lo, hi)
	case len(o.slots) > 0:
		v := o.engine.view()
		v.dst = append(v.dst, o.part(o.group.self, lo, hi))
		v.src = cut(v.src, o.ins, lo, hi)
		o.mid.Reduce(v.dst, nil, v.src)
		o.engine.views.Put(v)
		o.collected(lo, hi)
	case o.raw == nil:
		v := o.engine.view()
		v.dst = append(v.dst, o.acc[lo:hi])
		v.src = cut(v.src, o.ins, lo, hi)
		o.mid.Reduce(v.dst, nil, v.src)
		o.engine.views.Put(v)
	}
}
