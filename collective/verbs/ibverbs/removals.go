//go:build rdma && linux && (amd64 || arm64)

package ibverbs

import (
	"os"
	"sync"
	"time"
)

// removals ends the use of queue pairs whose device leaves the system. Most drivers report that as an event. Where one
// cannot take a device from its users, as rxe, the kernel reports nothing, and the removal waits until they have closed
// the device, which works on meanwhile. Its entry in sysfs goes at once.
type removals struct {
	mu    sync.Mutex
	pairs map[*pair]string // and the directory of the device
	stop  chan struct{}    // ends the goroutine that looks; nil if there are no pairs
	ended chan struct{}    // closed when it has ended
}

const lookInterval = time.Second

// watch adds a pair.
func (r *removals) watch(p *pair, directory string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pairs == nil {
		r.pairs = map[*pair]string{}
	}
	r.pairs[p] = directory
	if r.stop == nil {
		r.stop, r.ended = make(chan struct{}), make(chan struct{})
		go r.look(r.stop, r.ended)
	}
}

// forget removes a pair, if it is there. After it the pair is left alone.
func (r *removals) forget(p *pair) {
	r.mu.Lock()
	delete(r.pairs, p)
	stop, ended := r.stop, r.ended
	last := len(r.pairs) == 0 && stop != nil
	if last {
		r.stop = nil
	}
	r.mu.Unlock()
	if last {
		close(stop)
		<-ended
	}
}

// look looks for the directories until stop is closed.
func (r *removals) look(stop, ended chan struct{}) {
	defer close(ended)
	ticks := time.NewTicker(lookInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-stop:
			return
		}
		r.mu.Lock()
		gone := map[string]bool{}
		for p, directory := range r.pairs {
			if _, looked := gone[directory]; !looked {
				_, err := os.Stat(directory)
				gone[directory] = os.IsNotExist(err)
			}
			if gone[directory] {
				p.removed.Store(true)
				p.asynchronous.end()
			}
		}
		r.mu.Unlock()
	}
}
