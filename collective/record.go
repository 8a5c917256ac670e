package collective

import (
	"time"

	"gorun/collective/flight"
)

// recorder keeps the last operations of this host. Engine.mu guards it; its methods do nothing on nil.
type recorder struct {
	ring   *flight.Ring[flight.Operation]
	since  time.Time // when it began
	now    int64     // nanoseconds since then, when the engine was last called
	number uint64    // of the last operation that began
	counts counts
}

func newRecorder() *recorder {
	return &recorder{ring: flight.NewRing[flight.Operation](flight.Operations), since: time.Now()}
}

// tick reads the clock, once for all that follows from a call of the engine.
func (r *recorder) tick() {
	if r != nil {
		r.now = int64(time.Since(r.since))
	}
}

// begin takes note of a new operation.
func (r *recorder) begin(o *op) {
	if r != nil {
		r.number++
		o.note = flight.Operation{ID: o.id, Number: r.number, Epoch: o.epoch, Group: o.group.id, LastHost: -1}
		o.note.SetName(o.name)
	}
}

// contributed takes note of a contribution of the index-th local rank, which is there.
func (r *recorder) contributed(o *op, index int) {
	if r == nil {
		return
	}
	if o.own.count == 1 {
		req := &o.own.reqs[index]
		size, _ := BytesOf(req.Shape, req.Type)
		o.note.Kind, o.note.Type, o.note.Size = uint8(req.Kind), uint8(req.Type), int64(size)
		if !req.Kind.hasTensor() {
			o.note.Size = 0
		}
	}
	o.note.Contributed(r.now, o.group.local()[index], index, !o.own.lacking())
}

// heard takes note that the host at a position has declared.
func (r *recorder) heard(o *op, pos int) {
	if r != nil {
		o.note.Heard(r.now, o.group.hosts[pos].ID)
	}
}

// ahead takes note of the hosts that had declared before the operation began.
func (r *recorder) ahead(o *op) {
	if r == nil {
		return
	}
	for pos := range o.votes {
		if o.declared(pos) {
			r.heard(o, pos)
		}
	}
}

// started takes note that all hosts have declared.
func (r *recorder) started(o *op) {
	if r != nil {
		o.note.Began = r.now
	}
}

// ended keeps an operation that has ended.
func (r *recorder) ended(o *op, failed bool) {
	if r == nil || o.note.Ended != 0 {
		return
	}
	o.note.Ended, o.note.Outcome = max(r.now, 1), flight.Done
	if failed {
		o.note.Outcome = flight.Failed
	}
	r.counts.add(&o.note)
	r.ring.Add(&o.note)
}
