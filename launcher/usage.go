package launcher

import (
	"time"

	"gorun/rendezvous/wire"
)

// reportUsage passes on what a daemon reports about its own ranks. next is the host that follows in the ring.
func (s *Spec) reportUsage(h *host, msg *wire.Usage, of processes, next string) {
	if s.UsedHost != nil {
		s.UsedHost(HostUsage{h.name, msg.Links, msg.Epoch, next})
	}
	if s.Used == nil {
		return
	}
	for _, u := range msg.Ranks {
		if of.on(h.id, u.Rank) {
			s.Used(RankUsage{u.Rank, time.Duration(u.CPUMS) * time.Millisecond, u.RSS, u.Processes, u.State, u.Split})
		}
	}
}
