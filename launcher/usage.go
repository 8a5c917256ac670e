package launcher

import (
	"time"

	"gorun/rendezvous/wire"
)

// reportUsage passes on what a daemon reports about itself and its ranks.
func (s *Spec) reportUsage(h *host, msg *wire.Usage, of processes, hosts hostList) {
	if s.UsedHost != nil {
		s.UsedHost(HostUsage{Host: h.name, Links: msg.Links, Epoch: msg.Epoch, Next: hosts.after(h.id), Each: hosts.linksTo(msg.Each),
			Ops: msg.Ops, Open: msg.Open, Results: msg.Results})
	}
	if s.Used == nil {
		return
	}
	for _, u := range msg.Ranks {
		if of.on(h.id, u.Rank) {
			s.Used(RankUsage{u.Rank, time.Duration(u.CPUMS) * time.Millisecond, u.RSS, u.Processes, u.State, of.at(u.Rank).spare, u.Split, u.Arena, u.At})
		}
	}
}

// linksTo names the hosts that links lead to. A host that was lost and is back has two ids and one name, and the newest
// counts: a sum of both would shrink when the old one is forgotten.
func (l hostList) linksTo(all []wire.LinkUsage) (named []LinkUsage) {
	newest := map[string]int{}
	for _, one := range all {
		if one.Peer >= 0 && one.Peer < len(l) {
			name := l[one.Peer].name
			newest[name] = max(newest[name], one.Peer)
		}
	}
	for _, one := range all {
		if one.Peer >= 0 && one.Peer < len(l) && newest[l[one.Peer].name] == one.Peer {
			named = append(named, LinkUsage{l[one.Peer].name, one.Links, one.Queued})
		}
	}
	return named
}
