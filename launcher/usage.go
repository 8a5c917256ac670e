package launcher

import (
	"slices"
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
			s.Used(RankUsage{u.Rank, time.Duration(u.CPUMS) * time.Millisecond, u.RSS, u.Processes, u.State, u.Split, u.Arena})
		}
	}
}

// linksTo names the hosts that links lead to. A host that was lost and is back has two ids and one name.
func (l hostList) linksTo(all []wire.LinkUsage) (named []LinkUsage) {
	for _, one := range all {
		if one.Peer < 0 || one.Peer >= len(l) {
			continue
		}
		name := l[one.Peer].name
		if i := slices.IndexFunc(named, func(n LinkUsage) bool { return n.To == name }); i >= 0 {
			(*carried)(&named[i].Links).add(one.Links)
			named[i].Queued += one.Queued
			continue
		}
		named = append(named, LinkUsage{name, one.Links, one.Queued})
	}
	return named
}
