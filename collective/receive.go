package collective

import (
	"fmt"
	"slices"
	"unsafe"

	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/collective/schedule"
)

// locate checks a data segment of a started op and finds its step. o.mu is held.
func (o *op) locate(peer int, h *link.Header) (step int, k int, err error) {
	if o.id != h.Op || o.gen != h.Gen {
		return 0, 0, fmt.Errorf("segment of use %d of %q, which is at use %d", h.Gen, o.name, o.gen)
	}
	step = int(h.Step)
	if step >= len(o.steps) {
		return 0, 0, fmt.Errorf("segment of step %d of %d", step, len(o.steps))
	}
	s := &o.steps[step]
	lo, size := int64(h.Offset), o.cut
	if s.Do.Sends() || o.group.hosts[s.Peer].ID != peer || lo < s.Lo || lo >= s.Hi || (lo-s.Lo)%size != 0 ||
		int64(h.Length) != o.length(min(size, s.Hi-lo)) {
		return 0, 0, fmt.Errorf("segment [%d:+%d) from host %d does not fit step %d of %q", lo, h.Length, peer, step, o.name)
	}
	return step, int((lo - s.Lo) / size), nil
}

// place returns where the payload of a segment is read to.
func (o *op) place(peer int, h *link.Header) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.dead:
		return nil, errAborted
	case !o.started:
		return nil, nil
	}
	step, _, err := o.locate(peer, h)
	if err != nil {
		return nil, err
	}
	s := &o.steps[step]
	lo := int64(h.Offset)
	hi := min(lo+o.cut, s.Hi)
	switch s.Do {
	case schedule.Take:
		return o.target(step, lo, hi), nil
	case schedule.Collect:
		return o.part(s.Peer, lo, hi), nil
	}
	return nil, nil
}

// deliver takes a complete segment.
func (o *op) deliver(peer int, h link.Header, payload []byte) {
	o.mu.Lock()
	if o.dead {
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
	bit := 0
	if err == nil {
		bit = o.first[step] + k
		if o.seen[bit/64]&(1<<(bit%64)) != 0 {
			err = fmt.Errorf("segment [%d:+%d) of step %d of %q came twice", h.Offset, h.Length, step, o.name)
		}
	}
	if err != nil {
		o.mu.Unlock()
		o.engine.log.Error("drop segment", "peer", peer, "err", err)
		return
	}
	o.seen[bit/64] |= 1 << (bit % 64)
	lo := int64(h.Offset)
	hi := min(lo+o.cut, o.steps[step].Hi)
	if o.steps[step].Do.Merges() && !o.free(step, k) {
		o.early = append(o.early, arrival{step, lo, o.copied(payload)})
		o.mu.Unlock()
		return
	}
	o.busy++
	o.mu.Unlock()

	o.take(step, lo, hi, payload)
	if !o.postpone(step, k, lo) {
		o.after(step, lo)
		o.leave()
	}
}

// keep copies a segment until the op starts. That is the ordinary case for the first ones: they overtake
// the last ready message on another stream. It is as much as the tensor allows, no algorithm sends a host more than
// twice its size from every other; where the size depends on what hosts have yet to say, all such operations share
// a limit. o.mu is held.
func (o *op) keep(peer int, h link.Header, payload []byte) error {
	// What is short costs more than its bytes.
	n, size, hosts := max(int64(len(payload)), schedule.Align), o.foreseen.Load(), int64(o.group.width)
	switch {
	case size < 0 && o.engine.stashed.Add(n) > o.engine.stashMax:
		o.engine.stashed.Add(-n)
		return fmt.Errorf("receive segments from host id %d: more than %d bytes came before hosts had agreed on %q", peer, o.engine.stashMax, o.name)
	case size >= 0 && (h.Offset >= uint64(size) || o.stashed+n > 2*hosts*(size+schedule.Align*int64(len(o.group.ranks)))):
		return fmt.Errorf("receive segment [%d:+%d) from host id %d: it does not fit %q of %d bytes", h.Offset, h.Length, peer, o.name, size)
	}
	o.stashed += n
	o.stash = append(o.stash, stashed{peer, h, o.copied(payload)})
	return nil
}

// unstash gives the shared limit back what the op took of it. o.mu is held.
func (o *op) unstash() {
	if o.foreseen.Load() < 0 {
		o.engine.stashed.Add(-o.stashed)
	}
	o.stashed = 0
}

// foresee returns the bytes of an operation whose size is what a rank of this host submitted, -1 if it depends on more.
func (o *op) foresee() int64 {
	if i := slices.Index(o.have, true); i >= 0 {
		r := &o.reqs[i]
		switch r.Kind.moves() {
		case Allreduce, Broadcast, ReduceScatter:
			n, _ := bytesOf(r.Shape, r.Type)
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

// target returns where the bytes [lo, hi) of a Take step belong.
func (o *op) target(step int, lo, hi int64) []byte {
	if o.climbs() {
		return o.climb.vector(o.climb.places[step], o.size)[lo:hi:hi]
	}
	if o.coded.on() {
		return o.imageOf(lo, hi)
	}
	if o.kind == Alltoall {
		lo, hi = lo+o.base[step], hi+o.base[step]
	}
	return o.acc[lo:hi:hi]
}

// take reduces or stores a segment's payload.
func (o *op) take(step int, lo, hi int64, payload []byte) {
	if o.coded.on() {
		o.takeCoded(step, lo, hi, payload)
		return
	}
	s := &o.steps[step]
	switch s.Do {
	case schedule.Add, schedule.Finish:
		v := o.engine.view()
		v.src = cut(v.src, o.ins, lo, hi)
		v.dst = append(v.dst, o.acc[lo:hi])
		if s.Do == schedule.Add {
			o.mid.Reduce(v.dst, payload, v.src)
		} else {
			v.dst = cut(v.dst, o.copies, lo, hi)
			o.last.Reduce(v.dst, payload, v.src)
		}
		o.engine.views.Put(v)
	case schedule.Merge, schedule.Conclude:
		v := o.engine.view()
		v.src = append(v.src, payload)
		v.dst = append(v.dst, o.acc[lo:hi])
		plan := o.join
		if s.Do == schedule.Conclude {
			plan = o.combine
			v.dst = cut(v.dst, o.copies, lo, hi)
		}
		plan.Reduce(v.dst, o.acc[lo:hi], v.src)
		o.engine.views.Put(v)
	case schedule.Take:
		settleIn(o.target(step, lo, hi), payload)
		o.copyOut(lo, hi)
	case schedule.Collect:
		settleIn(o.part(s.Peer, lo, hi), payload)
		o.collected(lo, hi)
	}
}

// settleIn puts a payload where it belongs, unless it was read there.
func settleIn(dst, payload []byte) {
	if unsafe.SliceData(dst) != unsafe.SliceData(payload) {
		copy(dst, payload)
	}
}

// copyOut copies a result to the ranks whose output is not acc.
func (o *op) copyOut(lo, hi int64) {
	if len(o.copies) == 0 {
		return
	}
	v := o.engine.view()
	v.dst = cut(v.dst, o.copies, lo, hi)
	kernel.Copy(v.dst, o.acc[lo:hi])
	o.engine.views.Put(v)
}

// collected counts a part of [lo, hi); the last one adds all of them in the order of positions.
func (o *op) collected(lo, hi int64) {
	k := lo / o.cut
	o.mu.Lock()
	o.missing[k]--
	done := o.missing[k] == 0
	o.mu.Unlock()
	if !done {
		return
	}
	if o.coded.on() {
		o.collectCoded(lo, hi)
		return
	}
	v := o.engine.view()
	for pos := range o.group.hosts {
		v.src = append(v.src, o.part(pos, lo, hi))
	}
	v.dst = cut(v.dst, o.outs, lo, hi)
	o.combine.Reduce(v.dst, nil, v.src)
	o.engine.views.Put(v)
}

// view is the memory for the arguments of a kernel.
type view struct {
	dst, src [][]byte
}

// cut appends the bytes [lo, hi) of every slice.
func cut(dst, of [][]byte, lo, hi int64) [][]byte {
	for _, b := range of {
		dst = append(dst, b[lo:hi])
	}
	return dst
}
