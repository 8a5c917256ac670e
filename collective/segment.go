package collective

import (
	"errors"
	"fmt"

	"gorun/collective/link"
	"gorun/collective/schedule"
)

// The path of a segment, and whose goroutine does it:
//
//	queue    the goroutine that starts the op, or finished what the segment waits for: header, payload, Transport.Send
//	Prepare  a stream, right before the wire: the strategy makes the host's contribution from the ranks' inputs
//	place    a stream of the peer: where results and contributions are read to
//	deliver  the same: the strategy reduces with the inputs while hot, copies to the other ranks, queues what waits
//	Acked    any stream: the memory is free
//
// Bytes moved for a ring over H hosts with P ranks each and n bytes, beyond the wire: every input is
// read once and every output written once; a partial is written and read once per hop, from cache when a
// segment fits.

// ackNowBelow is how many of the last segments to a peer ask for an acknowledgement at once, if a rank
// waits for it: it is not known which of several streams finishes last.
const ackNowBelow = 4

var (
	errAborted = errors.New("operation was aborted")
	errUnknown = errors.New("no such operation here")
	errEpoch   = errors.New("segment of another epoch")
	errPeer    = errors.New("not a host of this world")
)

// piece is a data segment and what the op must know when it is on its way.
type piece struct {
	link.Segment
	op   *op
	step int
	made bool // the payload is there
	held bool // the payload is the holder's memory
}

// queueAll queues all segments of a sending step.
func (o *op) queueAll(i int) {
	for lo := o.run.steps[i].Lo; lo < o.run.steps[i].Hi; lo += o.run.cut {
		o.queue(i, lo)
	}
}

// queue gives the segment at lo of a sending step to the link.
func (o *op) queue(i int, lo int64) {
	s := &o.run.steps[i]
	hi := min(lo+o.run.cut, s.Hi)
	p := o.engine.pieces.Get().(*piece)
	p.op, p.step, p.made = o, i, s.Do != schedule.Contribute
	p.Header = link.Header{Kind: link.Data, Step: s.Tag, Epoch: o.epoch, Op: o.id, Gen: o.gen,
		Offset: uint64(lo)}
	if !o.run.typ.Float() { // objects travel as bytes
		p.Flags |= link.FlagCheck
	}
	p.Payload = o.strategy.payload(i, lo, hi)
	p.Length = uint32(len(p.Payload))
	// A small payload is copied by the link as it is sent, so it must be there, and its memory is free.
	small := len(p.Payload) <= link.CopyLimit
	peer, made := o.group.hosts[s.Peer].ID, p.made
	p.held = o.holder != noRank && !small

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
	o.run.queued[s.Peer]--
	awaited := o.holder != noRank && (o.size > link.CopyLimit || o.holder == allRanks)
	if awaited && o.run.queued[s.Peer] < ackNowBelow {
		p.Flags |= link.FlagAckNow
	}
	o.mu.Unlock()
	if made || !small {
		o.engine.cfg.Transport.Send(peer, &p.Segment)
		return
	}
	p.made = true
	if !o.enter() {
		return // aborted meanwhile
	}
	o.strategy.make(i, lo, hi)
	o.engine.cfg.Transport.Send(peer, &p.Segment)
	o.strategy.follow(i, lo)
	o.leave()
}

// Prepare makes the host's contribution to the payload and queues what else is sent of it.
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
	o.strategy.make(p.step, lo, o.run.end(p.step, lo))
	o.strategy.follow(p.step, lo)
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
	o.advance()
}

// refuses returns why the op takes no segment with this header, nil if it does. An op that Engine.find returned may be
// over by now, and even serve another name: its group and its memory are gone. o.mu is held.
func (o *op) refuses(h *link.Header) error {
	switch {
	case o.dead:
		return errAborted
	case o.stage != open || o.id != h.Op:
		return errUnknown
	}
	return nil
}

// locate checks a data segment of a started op and finds its step. o.mu is held.
func (o *op) locate(peer int, h *link.Header) (step, k int, err error) {
	if o.gen != h.Gen {
		return 0, 0, fmt.Errorf("segment of use %d of %q, which is at use %d", h.Gen, o.name, o.gen)
	}
	return o.run.locate(o.group, o.name, peer, h)
}

// place returns where the payload of a segment is read to.
func (o *op) place(peer int, h *link.Header) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.refuses(h); err != nil || !o.started {
		return nil, err
	}
	step, _, err := o.locate(peer, h)
	if err != nil {
		return nil, err
	}
	lo := int64(h.Offset)
	return o.strategy.target(step, lo, o.run.end(step, lo)), nil
}

// deliver takes a complete segment.
func (o *op) deliver(peer int, h link.Header, payload []byte) {
	o.mu.Lock()
	if o.refuses(&h) != nil {
		o.mu.Unlock()
		return
	}
	if !o.started {
		err := o.keep(peer, h, payload)
		o.mu.Unlock()
		if err != nil { // without what was not kept the operation never ends
			o.engine.breaks(peer, err)
		}
		return
	}
	step, k, err := o.locate(peer, &h)
	if err == nil && !o.run.see(step, k) {
		err = fmt.Errorf("segment [%d:+%d) of step %d of %q came twice", h.Offset, h.Length, step, o.name)
	}
	if err != nil {
		o.mu.Unlock()
		o.engine.cfg.Log.Error("drop segment", "peer", peer, "err", err)
		return
	}
	lo := int64(h.Offset)
	if o.run.steps[step].Do.Merges() && !o.run.free(step, k) {
		o.run.early = append(o.run.early, arrival{step, lo, o.copied(payload)})
		o.mu.Unlock()
		return
	}
	o.busy++
	o.mu.Unlock()

	o.strategy.deliver(step, lo, o.run.end(step, lo), payload)
	if !o.postpone(step, k, lo) {
		o.strategy.follow(step, lo)
		o.leave()
	}
}

// passOn queues what waited for the segment at lo of step i, or for the last one of the step: sends first,
// because a merge may write what they read.
func (o *op) passOn(i int, lo int64) {
	run := &o.run
	s := &run.steps[i]
	o.mu.Lock()
	run.undone[i]--
	whole := run.undone[i] == 0
	o.mu.Unlock()
	for j := i + 1; j < len(run.steps); j++ {
		switch w := &run.steps[j]; {
		case w.Do != schedule.Send || w.After != i:
		case w.Lo == s.Lo && w.Hi == s.Hi:
			o.queue(j, lo)
		case whole:
			o.queueAll(j)
		}
	}
	if run.ordered {
		o.catchUp(i, lo)
	}
}

// postpone keeps a segment that is where it belongs but comes after a step that is not done, and reports
// whether it did.
func (o *op) postpone(step, k int, lo int64) bool {
	if !o.run.ordered {
		return false
	}
	o.mu.Lock()
	if o.run.free(step, k) {
		o.mu.Unlock()
		return false
	}
	o.run.early = append(o.run.early, arrival{step: step, lo: lo})
	o.busy--
	o.advance()
	return true
}

// catchUp notes that the segment at lo of step i is done and all that waited for it is queued. Then it processes the
// segments that came before their turn and waited for step i. What the caller counts in remaining keeps the op open
// meanwhile.
func (o *op) catchUp(i int, lo int64) {
	o.mu.Lock()
	o.run.finish(i, lo)
	for !o.dead {
		e, ok := o.run.due(i)
		if !ok {
			break
		}
		o.mu.Unlock()
		if e.payload != nil {
			o.strategy.deliver(e.step, e.lo, o.run.end(e.step, e.lo), *e.payload)
			o.engine.buffers.Put(e.payload)
		}
		o.strategy.follow(e.step, e.lo)
		o.mu.Lock()
		o.remaining--
	}
	o.mu.Unlock()
}

// keep copies a segment until the op starts. The first segments usually come early: they overtake the last ready
// message on another stream. The size of the tensor limits how much is kept, because no algorithm sends a host more
// than twice that size from every other host. Operations whose size depends on what hosts have yet to declare share a
// limit. o.mu is held.
func (o *op) keep(peer int, h link.Header, payload []byte) error {
	e, s := o.engine, &o.stash
	// What is short costs more than its bytes.
	n, size, hosts := max(int64(len(payload)), schedule.Align), s.foreseen.Load(), int64(o.group.width)
	most := 2 * hosts * (size + schedule.Align*int64(len(o.group.ranks)))
	switch {
	case size < 0 && e.stashed.Add(n) > e.cfg.Stash:
		e.stashed.Add(-n)
		return fmt.Errorf("receive segments from host id %d: more than %d bytes came before hosts had agreed on %q",
			peer, e.cfg.Stash, o.name)
	case size >= 0 && (h.Offset >= uint64(size) || s.bytes+n > most):
		return fmt.Errorf("receive segment [%d:+%d) from host id %d: it does not fit %q of %d bytes",
			h.Offset, h.Length, peer, o.name, size)
	}
	s.bytes += n
	s.segments = append(s.segments, stashed{peer, h, o.copied(payload)})
	return nil
}

// foresee returns the bytes of an operation whose size is what a rank of this host submitted, -1 if it depends on more.
func (u *use) foresee() int64 {
	if i := u.own.first(); i >= 0 {
		r := &u.own.reqs[i]
		if r.Kind.reduces() || r.Kind == Broadcast || r.Kind == Send {
			n, _ := BytesOf(r.Shape, r.Type)
			return int64(n)
		}
	}
	return -1
}

// copied copies a payload to memory that goes back to Engine.buffers.
func (o *op) copied(payload []byte) *[]byte {
	b := o.engine.buffers.Get().(*[]byte)
	*b = append((*b)[:0], payload...)
	return b
}

// release takes back a segment.
func (p *pools) release(s *piece) {
	s.op, s.Payload = nil, nil
	p.pieces.Put(s)
}
