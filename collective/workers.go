package collective

import (
	"slices"
	"sync"
)

// sliceBytes is how much of a local operation is reduced at once. Big enough that taking it from the queue
// does not show, small enough that the inputs of a few ranks fit the second-level cache.
const sliceBytes = 256 << 10

// sliced is work on some bytes that goroutines share.
type sliced interface {
	// slice does the bytes [lo, hi). Calls for different bytes come at the same time.
	slice(lo, hi int64)
}

// slicing is how far such work is taken from the queue.
type slicing struct {
	of     sliced
	size   int64
	cursor int64
	ticket uint64
}

// workers share the slices of large local operations, in the order in which these were queued.
type workers struct {
	count int

	mu      sync.Mutex
	wake    sync.Cond
	queue   []*slicing // with slices left
	shared  uint64
	running int
	stopped bool
}

func (w *workers) init(count int) {
	w.count = count
	w.wake.L = &w.mu
}

// share queues work and helps until its last slice is taken, so that it ends even without workers, and the first slice
// does not wait for one to wake.
func (w *workers) share(s *slicing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shared++
	ticket := w.shared
	s.ticket = ticket
	w.queue = append(w.queue, s)
	w.wake.Broadcast()
	for len(w.queue) > 0 && w.queue[0].ticket <= ticket {
		w.step()
	}
}

// step does a slice of what comes first. mu is held, and released meanwhile.
func (w *workers) step() {
	s := w.queue[0]
	lo, hi := s.cursor, min(s.cursor+sliceBytes, s.size)
	s.cursor = hi
	if hi == s.size {
		w.queue = slices.Delete(w.queue, 0, 1)
	}
	w.mu.Unlock()
	s.of.slice(lo, hi)
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

// stop makes run return. Queued slices are left to the goroutines that share them.
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
