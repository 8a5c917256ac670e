package collective

import (
	"fmt"
	"sync/atomic"

	"gorun/collective/kernel"
)

// Some kinds of operation leave their results in memory of the engine, which all ranks of the host share; the others in
// an output of each rank.

// provide gets result memory. If there is none, because ranks keep other results, the operation fails for the ranks of
// this host, but memory of the heap still lets pass through what other hosts need. If there is no room for that either,
// provide returns false, and the world cannot go on. On one host alone nothing passes through.
func (o *op) provide(n int64) bool {
	e, here := o.engine, o.group.hosts[o.group.self]
	b, err := e.cfg.Alloc.Alloc(int(n))
	if err == nil {
		o.buffer, o.acc = b, b.Bytes()[:n]
		return true
	}
	o.err = &Error{Code: CodeInternal,
		Text: fmt.Sprintf("%s %q: allocate %d bytes on %s: %v", o.own.reqs[0].Kind, o.name, n, here.Name, err)}
	if len(o.group.hosts) == 1 {
		o.size = 0 // nothing passes through
		return false
	}
	if e.spilled.Add(n) > e.cfg.Spill {
		e.spilled.Add(-n)
		o.size = 0
		e.breaks(here.ID, fmt.Errorf("%w, and as other hosts need it to pass through, which may take %d bytes, "+
			"the operation cannot end", o.err, e.cfg.Spill))
		return false
	}
	o.acc = make([]byte, n)
	o.buffer = &spill{o.acc, &e.spilled}
	return true
}

// spill is a result that only passes through here. Its op is the only holder.
type spill struct {
	heap
	spilled *atomic.Int64
}

// Release implements Buffer.
func (b *spill) Release() { b.spilled.Add(-int64(len(b.heap))) }

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
