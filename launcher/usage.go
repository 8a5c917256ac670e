package launcher

import (
	"time"

	"gorun/rendezvous/wire"
)

// RankUsage is what a rank uses, with all processes that it started.
type RankUsage struct {
	Rank      int
	CPU       time.Duration // so far
	RSS       int64         // bytes
	Processes int
	State     string // in words
}

// reportUsage passes on what a daemon reports about its own ranks.
func (s *Spec) reportUsage(h *host, msg *wire.Usage, of processes) {
	if s.Used == nil {
		return
	}
	for _, u := range msg.Ranks {
		if of.on(h.id, u.Rank) {
			s.Used(RankUsage{u.Rank, time.Duration(u.CPUMS) * time.Millisecond, u.RSS, u.Processes, u.State})
		}
	}
}
