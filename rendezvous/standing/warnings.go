package standing

import (
	"maps"
	"sync"
	"time"
)

const (
	// warnInterval is the least time between warnings about one address, and readInterval that between entries about one
	// address that reads a job's output.
	warnInterval = time.Minute
	readInterval = 10 * time.Minute
	// maxRecent bounds what is remembered.
	maxRecent = 256
)

// recent remembers what was logged, so that a log does not repeat it soon. It only decides.
type recent[K comparable] struct {
	mu   sync.Mutex
	last map[K]time.Time
}

// first reports whether something was not logged since an interval, and whether there was room to remember it.
func (r *recent[K]) first(what K, now time.Time, interval time.Duration) (first, room bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.last, func(_ K, at time.Time) bool { return now.Sub(at) >= interval })
	_, known := r.last[what]
	room = len(r.last) < maxRecent
	if !known && room {
		if r.last == nil {
			r.last = map[K]time.Time{}
		}
		r.last[what] = now
	}
	return !known, room
}
