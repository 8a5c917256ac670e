package collective

// startLocal runs an op of ranks of this host only, which is laid out. The limit is memory: every input is read once
// and every output written once. A small op is done here and now, which costs neither a wake-up nor a
// hand-over; a large one is shared with the workers, which need 5 to 50 µs to wake.
func (o *op) startLocal() {
	if o.size <= o.engine.cfg.Inline || o.err != nil {
		if o.size > 0 {
			o.strategy.local(0, o.size)
		}
		o.mu.Lock()
		o.remaining = 0
		o.advance()
		return
	}
	o.slices = slicing{of: o, size: o.size}
	o.mu.Lock()
	o.started = true
	o.remaining = int((o.size + sliceBytes - 1) / sliceBytes)
	o.mu.Unlock()
	o.engine.workers.share(&o.slices)
}

// slice implements sliced.
func (o *op) slice(lo, hi int64) {
	o.strategy.local(lo, hi)
	o.mu.Lock()
	o.remaining--
	o.advance()
}
