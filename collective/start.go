package collective

import (
	"time"

	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

// start begins an op that all hosts agreed on.
func (o *op) start() {
	o.began = time.Now()
	if len(o.group.hosts) == 1 {
		o.layout()
		o.startLocal()
		return
	}
	o.layout()
	o.mu.Lock()
	if o.dead { // aborted since the verdict
		o.mu.Unlock()
		if o.buffer != nil {
			o.buffer.Release()
		}
		return
	}
	o.started = true
	stash := o.stash.segments
	o.mu.Unlock()
	for i := range o.run.steps {
		if o.run.steps[i].Do == schedule.Contribute {
			o.queueAll(i)
		}
	}
	if o.mixed && o.enter() {
		o.strategy.local(0, o.size)
		o.leave()
	}
	for _, s := range stash {
		o.deliver(s.peer, s.header, *s.payload)
		o.engine.buffers.Put(s.payload)
	}
	o.mu.Lock()
	o.stash.release(&o.engine.stashed)
	o.remaining--
	o.advance()
}

// layout lays an agreed op out: memory, steps and counters.
func (o *op) layout() {
	r := o.lead()
	size, _ := BytesOf(r.Shape, r.Type)
	o.size, o.err, o.mixed = int64(size), nil, false
	o.results.reset(len(o.own.reqs))
	o.take(&o.own)
	if o.own.lacking() && r.Kind == Allreduce {
		o.fill(o.size)
	}
	run := &o.run
	run.steps, run.cut = run.steps[:0], o.engine.cfg.Segment
	run.coding, run.typ = kernel.CodingNone, r.Type
	if len(o.group.hosts) > 1 && o.size > 0 && !o.inline {
		run.coding = max(r.Coding, kernel.CodingNone)
	}
	if o.by = schedule.Auto; r.Kind == Allreduce {
		o.by = o.algorithm()
	}
	o.engine.strategies.choose(o, r)
	o.strategy.layout(o, r)
	o.remaining = run.begin(len(o.group.hosts)) + 1
	if o.mixed {
		o.remaining++
	}
}
