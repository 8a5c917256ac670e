package collective

import (
	"slices"
	"sync"
)

// slice is how much of a local operation is reduced at once. Big enough that taking it from the queue
// does not show, small enough that the inputs of a few ranks fit the second-level cache.
const slice = 256 << 10

// local reports whether an op is being carried out on this host alone.
func (o *op) local() bool { return len(o.group.hosts) == 1 && o.votes[0].set }

// startLocal runs an op of ranks of this host only. The limit is memory: every input is read once and
// every output written once. A small op is done here and now, which costs neither a wake-up nor a
// hand-over; a large one is shared with the workers, who need 5 to 50 µs to wake.
func (o *op) startLocal() {
	o.layout()
	if o.size <= o.engine.inlineMax || o.err != nil || o.climbs() {
		if o.size > 0 && !o.climbs() {
			o.reduce(0, o.size)
		}
		o.sliced()
		return
	}
	o.cursor = 0
	o.mu.Lock()
	o.started = true
	o.remaining = int((o.size + slice - 1) / slice)
	o.mu.Unlock()
	o.engine.workers.share(o)
}

// sliced counts a finished slice.
func (o *op) sliced() {
	o.mu.Lock()
	o.remaining--
	o.settle()
}

// reduce does the work of a local op on the bytes [lo, hi) of its result.
func (o *op) reduce(lo, hi int64) {
	switch o.kind {
	case Allreduce:
		v := o.engine.view()
		v.dst, v.src = cut(v.dst, o.outs, lo, hi), cut(v.src, o.ins, lo, hi)
		o.last.Reduce(v.dst, nil, v.src)
		o.engine.views.Put(v)
	case Broadcast:
		o.copyOut(lo, hi)
	case Alltoall:
		o.exchange(lo, hi)
	case ReduceScatter:
		v := o.engine.view()
		v.dst, v.src = append(v.dst, o.acc[lo:hi]), cut(v.src, o.ins, lo, hi)
		o.last.Reduce(v.dst, nil, v.src)
		o.engine.views.Put(v)
	case Allgather:
		for i, in := range o.ins {
			start := o.starts[i]
			from, to := max(lo, start), min(hi, start+int64(len(in)))
			if from < to {
				copy(o.acc[from:to], in[from-start:to-start])
			}
		}
	}
}

// exchange copies what ranks of this host have for each other in an alltoall, as far as it is in the bytes
// [lo, hi) of the result.
func (o *op) exchange(lo, hi int64) {
	g, row := o.group, int64(0)
	if n, _ := bytesOf(o.reqs[0].Shape[1:], o.reqs[0].Type); n > 0 {
		row = int64(n)
	}
	for to, b := range g.seats {
		if b.pos != g.self {
			continue
		}
		if r := &o.results[b.index]; int64(r.Hi) <= lo || hi <= int64(r.Lo) {
			continue
		}
		for from, a := range g.seats {
			if a.pos != g.self {
				continue
			}
			start := o.starts[from*len(o.reqs)+b.index]
			i, j := max(lo, start), min(hi, start+int64(o.reqs[a.index].Splits[to])*row)
			if i < j {
				shift := o.sent(a.index, to)*row - start
				copy(o.acc[i:j], o.ins[a.index][i+shift:j+shift])
			}
		}
	}
}

// workers share the slices of large local operations, in the order of operations.
type workers struct {
	count int

	mu      sync.Mutex
	wake    sync.Cond
	queue   []*op // with slices left
	shared  uint64
	running int
	stopped bool
}

func (w *workers) init(count int) {
	w.count = count
	w.wake.L = &w.mu
}

// share queues an op and helps until somebody works on its last slice, so that it ends even without
// workers, and the first slice does not wait for one to wake.
func (w *workers) share(o *op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shared++
	ticket := w.shared
	o.ticket = ticket
	w.queue = append(w.queue, o)
	w.wake.Broadcast()
	for len(w.queue) > 0 && w.queue[0].ticket <= ticket {
		w.step()
	}
}

// step takes a slice of the first op and does it. mu is held, and released meanwhile.
func (w *workers) step() {
	o := w.queue[0]
	lo := o.cursor
	hi := min(lo+slice, o.size)
	o.cursor = hi
	if hi == o.size {
		w.queue = slices.Delete(w.queue, 0, 1)
	}
	w.mu.Unlock()
	o.reduce(lo, hi)
	o.sliced()
	w.mu.Lock()
}

// run works until stop, then returns when all workers did.
func (w *workers) run() {
	w.mu.Lock()
	w.running++
	w.mu.Unlock()
	var all sync.WaitGroup
	for range w.count {
		all.Go(w.work)
	}
	all.Wait()
	w.mu.Lock()
	w.running--
	w.wake.Broadcast()
	w.mu.Unlock()
}

func (w *workers) work() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.stopped {
		if len(w.queue) == 0 {
			w.wake.Wait()
			continue
		}
		w.step()
	}
}

// stop makes run return. Queued slices are left to those who shared them.
func (w *workers) stop() {
	w.mu.Lock()
	w.stopped = true
	w.wake.Broadcast()
	w.mu.Unlock()
}

// wait returns when run did.
func (w *workers) wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.running > 0 {
		w.wake.Wait()
	}
}
