package collective

import (
	"slices"
	"sync"
)

// slice is how much of a local operation is reduced at once. Big enough that taking it from the queue
// does not show, small enough that the inputs of a few ranks fit the second-level cache.
const slice = 256 << 10

// slicing is how far a large local operation is taken from the queue.
type slicing struct {
	cursor int64
	ticket uint64
}

// startLocal runs an op of ranks of this host only, which is laid out. The limit is memory: every input is read once
// and every output written once. A small op is done here and now, which costs neither a wake-up nor a
// hand-over; a large one is shared with the workers, which need 5 to 50 µs to wake.
func (o *op) startLocal() {
	if o.size <= o.engine.inlineMax || o.err != nil {
		if o.size > 0 {
			o.strategy.local(0, o.size)
		}
		o.mu.Lock()
		o.remaining = 0
		o.advance()
		return
	}
	o.slices.cursor = 0
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
	o.advance()
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

// share queues an op and helps until its last slice is taken, so that it ends even without
// workers, and the first slice does not wait for one to wake.
func (w *workers) share(o *op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shared++
	ticket := w.shared
	o.slices.ticket = ticket
	w.queue = append(w.queue, o)
	w.wake.Broadcast()
	for len(w.queue) > 0 && w.queue[0].slices.ticket <= ticket {
		w.step()
	}
}

// step takes a slice of the first op and does it. mu is held, and released meanwhile.
func (w *workers) step() {
	o := w.queue[0]
	lo := o.slices.cursor
	hi := min(lo+slice, o.size)
	o.slices.cursor = hi
	if hi == o.size {
		w.queue = slices.Delete(w.queue, 0, 1)
	}
	w.mu.Unlock()
	o.strategy.local(lo, hi)
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
