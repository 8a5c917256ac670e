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

// used passes on a daemon's answer.
func (j *job) used(h *host, msg *wire.Usage) {
	if j.spec.Used == nil {
		return
	}
	for _, u := range msg.Ranks {
		if j.processes.on(h.id, u.Rank) {
			j.spec.Used(RankUsage{u.Rank, time.Duration(u.CPUMS) * time.Millisecond, u.RSS, u.Processes, u.State})
		}
	}
}
