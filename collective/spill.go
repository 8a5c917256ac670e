package collective

import "sync"

// spills bounds the memory of results that Alloc had none for, but that other hosts need: they only pass through here,
// in spill buffers on the heap.
//
// An operation that gets no memory waits for operations that are over here: those keep their memory only until peers
// have what was sent of them, whatever else the peers wait for. It does not wait for the memory of open operations,
// because another host may be waiting for these: if they hold too much, the world cannot go on.
type spills struct {
	limit int64

	mu   sync.Mutex
	open int64    // bytes of operations that are not over here
	over int64    // bytes of operations that are
	late []func() // would start operations if over were 0
}

// take asks for n bytes. If there are none, late reports whether there may be later.
func (d *spills) take(n int64) (b *spill, late bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n > d.limit-d.open-d.over {
		return nil, n <= d.limit-d.open
	}
	d.open += n
	return &spill{heap: make([]byte, n), of: d}, false
}

// wait calls start when memory has been released. It returns false, and does not call start, if the memory to wait for
// has been released already.
func (d *spills) wait(start func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over == 0 {
		return false
	}
	d.late = append(d.late, start)
	return true
}

// spill is a result that only passes through. It implements Buffer, with its op as the only holder.
type spill struct {
	heap
	of   *spills
	over bool
}

// ended notes that the op is over here.
func (b *spill) ended() {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	b.over = true
	b.of.open -= int64(len(b.heap))
	b.of.over += int64(len(b.heap))
}

// Release gives the memory back.
func (b *spill) Release() {
	d := b.of
	d.mu.Lock()
	if b.over {
		d.over -= int64(len(b.heap))
	} else {
		d.open -= int64(len(b.heap))
	}
	late := d.late
	d.late = nil
	d.mu.Unlock()
	for _, start := range late {
		start()
	}
}
