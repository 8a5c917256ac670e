package collective

// Receives that come after another step. Peers of a recursive algorithm may be ahead of this host, so that
// what they send arrives before the step that it is added to was done.

// arrival is a segment of a step whose turn has not come.
type arrival struct {
	step    int
	lo      int64
	payload *[]byte // of Engine.buffers, nil if it is where it belongs
}

// free reports whether the step that a segment comes after is done. o.mu is held.
func (o *op) free(step, k int) bool {
	s := &o.steps[step]
	if s.After < 0 {
		return true
	}
	if a := &o.steps[s.After]; a.Lo == s.Lo && a.Hi == s.Hi {
		bit := o.first[s.After] + k
		return o.done[bit/64]&(1<<(bit%64)) != 0
	}
	return o.open[s.After] == 0
}

// postpone keeps a segment that is where it belongs but comes after a step that is not done, and reports
// whether it did.
func (o *op) postpone(step, k int, lo int64) bool {
	if !o.chained {
		return false
	}
	o.mu.Lock()
	if o.free(step, k) {
		o.mu.Unlock()
		return false
	}
	o.early = append(o.early, arrival{step: step, lo: lo})
	o.busy--
	o.settle()
	return true
}

// catchUp notes that the segment at lo of step i is done, what waited for it is queued, and does what came
// early. The caller's own part of remaining keeps the op open meanwhile.
func (o *op) catchUp(i int, lo int64) {
	bit := o.first[i] + int((lo-o.steps[i].Lo)/o.cut)
	o.mu.Lock()
	o.done[bit/64] |= 1 << (bit % 64)
	o.open[i]--
	for at := 0; at < len(o.early) && !o.dead; {
		e := o.early[at]
		s := &o.steps[e.step]
		if s.After != i || !o.free(e.step, int((e.lo-s.Lo)/o.cut)) {
			at++
			continue
		}
		last := len(o.early) - 1
		o.early[at], o.early[last] = o.early[last], arrival{}
		o.early = o.early[:last]
		o.mu.Unlock()
		if e.payload != nil {
			o.take(e.step, e.lo, min(e.lo+o.cut, s.Hi), *e.payload)
			o.engine.buffers.Put(e.payload)
		}
		o.after(e.step, e.lo)
		o.mu.Lock()
		o.remaining--
		at = 0
	}
	o.mu.Unlock()
}
