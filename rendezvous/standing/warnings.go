package standing

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// warnInterval is the least time between warnings about one address.
	warnInterval = time.Minute
	// maxWarned bounds the addresses that are remembered. Of others nothing is logged.
	maxWarned = 256
)

// warnings remembers when a warning about an origin was logged. It only decides.
type warnings struct {
	mu   sync.Mutex
	last map[netip.Prefix]time.Time
}

// warn reports whether to log a warning about an origin now.
func (w *warnings) warn(from netip.Prefix, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, since := range w.last {
		if now.Sub(since) >= warnInterval {
			delete(w.last, p)
		}
	}
	if _, recently := w.last[from]; recently || len(w.last) == maxWarned {
		return false
	}
	if w.last == nil {
		w.last = map[netip.Prefix]time.Time{}
	}
	w.last[from] = now
	return true
}
