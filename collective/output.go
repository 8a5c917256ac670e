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
	k, here := o.kit, o.group.hosts[o.group.self]
	b, err := k.allocator.Alloc(int(n))
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
	if k.spilled.Add(n) > k.spillMax {
		k.spilled.Add(-n)
		o.size = 0
		k.owner.breaks(here.ID, fmt.Errorf("%w, and as other hosts need it to pass through, which may take %d bytes, "+
			"the operation cannot end", o.err, k.spillMax))
		return false
	}
	o.acc = make([]byte, n)
	o.buffer = &spill{o.acc, &k.spilled}
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
	v := o.kit.view()
	v.dst = cut(v.dst, o.copies, lo, hi)
	kernel.Copy(v.dst, o.acc[lo:hi])
	o.kit.views.Put(v)
}
