package link

import (
	"log/slog"
	"sync"
	"time"
)

// refusals logs failures of unauthenticated peers, at a limited rate.
type refusals struct {
	log *slog.Logger

	mu         sync.Mutex
	last       time.Time
	suppressed int
}

const refusalInterval = 10 * time.Second

func (r *refusals) note(msg string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.last.IsZero() && now.Sub(r.last) < refusalInterval {
		r.suppressed++
		return
	}
	if r.suppressed > 0 {
		args = append(args, "suppressed", r.suppressed)
	}
	r.last, r.suppressed = now, 0
	r.log.Warn(msg, args...)
}
