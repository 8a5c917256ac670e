package collective

import (
	"fmt"

	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/collective/schedule"
)

// run is a schedule that is being carried out: which segments are done, and which came before their turn. What
// changes while segments move is guarded by op.mu.
type run struct {
	// Written by the layout, constant until the op is recycled.
	steps   []schedule.Step
	cut     int64         // bytes of a segment
	coding  kernel.Coding // of segments, CodingNone if they travel as they are
	typ     kernel.Type
	first   []int // by step: index of its first segment in seen and done
	ordered bool  // some receives come after another step

	seen   []uint64  // bit per received segment
	done   []uint64  // bit per segment that is done and what waited for it queued, if ordered
	undone []int32   // by step: segments that are not done
	open   []int32   // the same, but until what waited for them is queued
	early  []arrival // segments whose turn has not come
	queued []int32   // by position: segments still to be queued
}

// arrival is a segment of a step whose turn has not come. Peers of a recursive algorithm may be ahead of this host,
// so that what they send arrives before the step that it is added to was done.
type arrival struct {
	step    int
	lo      int64
	payload *[]byte // of Engine.buffers, nil if it is where it belongs
}

// length returns the bytes on the wire of a segment of n bytes.
func (r *run) length(n int64) int64 { return r.coding.Bytes(r.typ, n) }

// segments returns how many segments a step has.
func (r *run) segments(s *schedule.Step) int {
	return int((s.Hi - s.Lo + r.cut - 1) / r.cut)
}

// end returns where the segment at lo of a step ends.
func (r *run) end(step int, lo int64) int64 { return min(lo+r.cut, r.steps[step].Hi) }

// begin sets the counters for the steps, and returns how many segments this host makes or receives.
func (r *run) begin(hosts int) (own int) {
	r.first = r.first[:0]
	r.queued = resize(r.queued, hosts)
	clear(r.queued)
	r.undone = resize(r.undone, len(r.steps))
	r.ordered = false
	bits := 0
	for i := range r.steps {
		s := &r.steps[i]
		n := r.segments(s)
		r.first = append(r.first, bits)
		bits += n
		r.undone[i] = int32(n)
		if s.Do.Sends() {
			r.queued[s.Peer] += int32(n)
		}
		if s.Do != schedule.Send {
			own += n
		}
		r.ordered = r.ordered || !s.Do.Sends() && s.After >= 0
	}
	r.open = append(r.open[:0], r.undone...)
	r.done = resize(r.done, (bits+63)/64)
	clear(r.done)
	r.seen = resize(r.seen, (bits+63)/64)
	clear(r.seen)
	return own
}

// locate finds the step and the segment that a header from a peer is about, in an op of the given group and name.
func (r *run) locate(g *group, name string, peer int, h *link.Header) (step, k int, err error) {
	step = int(h.Step)
	if step >= len(r.steps) {
		return 0, 0, fmt.Errorf("segment of step %d of %d", step, len(r.steps))
	}
	s, lo := &r.steps[step], int64(h.Offset)
	if s.Do.Sends() || g.hosts[s.Peer].ID != peer || lo < s.Lo || lo >= s.Hi || (lo-s.Lo)%r.cut != 0 ||
		int64(h.Length) != r.length(min(r.cut, s.Hi-lo)) {
		return 0, 0, fmt.Errorf("segment [%d:+%d) from host %d does not fit step %d of %q", lo, h.Length, peer, step, name)
	}
	return step, int((lo - s.Lo) / r.cut), nil
}

// see notes that the k-th segment of a step arrived. It returns false if it had before.
func (r *run) see(step, k int) bool {
	bit := r.first[step] + k
	if r.seen[bit/64]&(1<<(bit%64)) != 0 {
		return false
	}
	r.seen[bit/64] |= 1 << (bit % 64)
	return true
}

// free reports whether a segment need not wait any more: the step that it comes after is done, or the segment of that
// step with the same bytes.
func (r *run) free(step, k int) bool {
	s := &r.steps[step]
	if s.After < 0 {
		return true
	}
	if a := &r.steps[s.After]; a.Lo == s.Lo && a.Hi == s.Hi {
		bit := r.first[s.After] + k
		return r.done[bit/64]&(1<<(bit%64)) != 0
	}
	return r.open[s.After] == 0
}

// finish notes that what waited for the segment at lo of a step is queued.
func (r *run) finish(step int, lo int64) {
	bit := r.first[step] + int((lo-r.steps[step].Lo)/r.cut)
	r.done[bit/64] |= 1 << (bit % 64)
	r.open[step]--
}

// due takes out of early a segment whose turn has come, now that one of the given step is done.
func (r *run) due(step int) (arrival, bool) {
	for at, e := range r.early {
		s := &r.steps[e.step]
		if s.After != step || !r.free(e.step, int((e.lo-s.Lo)/r.cut)) {
			continue
		}
		last := len(r.early) - 1
		r.early[at], r.early[last] = r.early[last], arrival{}
		r.early = r.early[:last]
		return e, true
	}
	return arrival{}, false
}
