package launcher

import (
	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

// reportUsage passes on what a daemon reports about itself and its ranks.
func (s *Spec) reportUsage(h *host, msg *wire.Usage, of processes, hosts hostList) {
	if s.UsedHost != nil {
		s.UsedHost(jobs.HostStatus{Name: h.name, Next: hosts.after(h.id), Epoch: msg.Epoch, Links: msg.Links, Each: hosts.linksTo(msg.Each),
			Operations: msg.Ops, Open: msg.Open, Results: msg.Results})
	}
	if s.Used == nil {
		return
	}
	for _, u := range msg.Ranks {
		if of.on(h.id, u.Rank) {
			s.Used(u, of.at(u.Rank).spare)
		}
	}
}

// linksTo names the hosts that links lead to. A host that was lost and is back has two ids and one name, and the newest
// counts: a sum of both would shrink when the old one is forgotten.
func (l hostList) linksTo(all []wire.LinkUsage) (named []jobs.LinkStatus) {
	newest := map[string]int{}
	for _, one := range all {
		if one.Peer >= 0 && one.Peer < len(l) {
			name := l[one.Peer].name
			newest[name] = max(newest[name], one.Peer)
		}
	}
	for _, one := range all {
		if one.Peer >= 0 && one.Peer < len(l) && newest[l[one.Peer].name] == one.Peer {
			named = append(named, jobs.LinkStatus{To: l[one.Peer].name, Links: one.Links, Queued: one.Queued})
		}
	}
	return named
}
