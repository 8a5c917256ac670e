package launcher

import (
	"fmt"
	"net"
	"slices"

	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/launcher/plan"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// enter sends the rosters of another world.
func (j *job) enter(w elastic.Roster) {
	j.membership.epoch = w.Epoch
	roster, placement := j.rosterOf(w)
	j.membership.hosts = w.Hosts()
	ranks, spares := j.placed(w.Places), j.placed(w.Spares)
	if j.stopping {
		return
	}
	for _, p := range w.Places {
		j.enters(p.Process)
	}
	for _, h := range j.hosts {
		h.Own(slices.Concat(ranks[h.id], spares[h.id]))
	}
	j.replicate(func() {
		var names []string
		for _, h := range placement.Hosts {
			names = append(names, h.Name)
		}
		j.membership.world(len(w.Places), names)
		if w.Epoch > 1 && !w.Quiet && !j.stopping {
			j.spec.Note("gorun: epoch %d: %s on %s, because %s", w.Epoch,
				topology.Count(len(w.Places), "rank"), topology.Count(len(names), "host"), w.Reason)
		}
		j.sendRosters(roster, ranks, spares)
	})
}

// rosterOf returns a world as its daemons get it, without the ranks of each, and as package plan sees it.
func (s *state) rosterOf(w elastic.Roster) (wire.Roster, plan.Placement) {
	roster := wire.Roster{Epoch: w.Epoch, LeaseMS: int(s.lease().Milliseconds()), Reason: w.Reason, Size: len(w.Places),
		Later: w.Later}
	placement, ids := placementOf(w, func(id int) string { return s.hosts[id].name })
	for i, id := range ids {
		ready := s.hosts[id].ready
		roster.Peers = append(roster.Peers, wire.Peer{ID: id, Name: s.hosts[id].name, Gossip: ready.Gossip, Data: ready.Data,
			Ports: ready.Ports, Ranks: placement.Hosts[i].Ranks})
	}
	first := s.hosts[roster.Peers[0].ID].ready
	if len(first.Data) > 0 {
		roster.MasterAddr, _, _ = net.SplitHostPort(first.Data[0])
	}
	roster.MasterPort, roster.KVPort = first.Port, first.KVPort
	return roster, placement
}

// placed notes where processes are, and returns them by host. It stops the job if a new one cannot be admitted.
func (j *job) placed(places []elastic.ProcessPlace) map[int][]wire.Rank {
	byHost := map[int][]wire.Rank{}
	for _, p := range places {
		byHost[p.Host] = append(byHost[p.Host], j.spec.rankOf(p.Rank, p))
		j.processes.place(p.Process, p.Host)
		if !p.New {
			continue
		}
		if err := j.membership.admit(p.Process, j.hosts[p.Host].name); err != nil {
			j.stop(err)
		}
	}
	return byHost
}

// enters notes that a process has a place in the world.
func (j *job) enters(process int) {
	if p := &j.processes[process]; p.spare {
		p.spare = false
		j.spec.watch(RankEvent{Rank: process, Host: j.hosts[p.host].name, Enters: true})
	}
}

// tendSpares sends the spares of the present world to their hosts. A host that is not in that world may not know it. Its roster
// lists the spares too, because those it runs already end if that leaves them out.
func (j *job) tendSpares(s elastic.Spares) {
	spares := j.placed(s.Places)
	for _, p := range s.Places {
		j.processes[p.Process].spare = true
	}
	for _, h := range j.hosts {
		h.Own(spares[h.id])
	}
	world := elastic.Roster{Epoch: s.Epoch, Places: j.membership.policy.World()}
	members := world.Hosts()
	lost := func(id int) bool { return j.hosts[id].ready == nil } // since another launcher had it
	if len(members) == 0 || slices.ContainsFunc(members, lost) {
		return // another world follows, which lists spares too
	}
	j.replicate(func() {
		roster, _ := j.rosterOf(world)
		for _, h := range j.hosts {
			mine := roster
			mine.Spares = spares[h.id]
			if h.ready == nil || h.ended || h.leaving || len(mine.Spares) == 0 && !h.spares {
				continue
			}
			h.spares = len(mine.Spares) > 0
			if !slices.Contains(members, h.id) {
				h.Queue.Put(&mine)
			}
			h.Queue.Put(&wire.Spares{Epoch: s.Epoch, Ranks: mine.Spares})
		}
	})
}

// sendRosters sends a roster to all hosts that are there, each with its own ranks.
func (j *job) sendRosters(roster wire.Roster, ranks, spares map[int][]wire.Rank) {
	var present hostList
	for _, h := range j.hosts {
		if h.ready != nil && !h.ended && !h.leaving {
			present = append(present, h)
		}
	}
	present.sendPeers(&roster)
	for _, h := range present {
		mine := roster
		mine.Ranks, mine.Spares = ranks[h.id], spares[h.id]
		h.spares = len(mine.Spares) > 0
		h.Queue.Put(&mine)
	}
}

// rankOf returns the rank of a place as its daemon gets it.
func (s *Spec) rankOf(rank int, p elastic.ProcessPlace) wire.Rank {
	number, program := s.programOf(rank)
	r := wire.Rank{Process: p.Process, Rank: rank, LocalRank: p.LocalRank, CrossRank: p.CrossRank, CrossSize: p.CrossSize,
		Slot: p.Slot, Env: program.Env}
	if len(s.Programs) > 1 {
		r.Argv, r.Dir, r.Program = program.Argv, program.Dir, number
	}
	return r
}

// placementOf returns a world as package plan sees it, and the ids of its hosts in their order there.
func placementOf(w elastic.Roster, name func(id int) string) (p plan.Placement, ids []int) {
	at := map[int]int{} // index of a host id
	for rank, place := range w.Places {
		i, known := at[place.Host]
		if !known {
			i = len(ids)
			at[place.Host], ids = i, append(ids, place.Host)
			p.Hosts = append(p.Hosts, plan.PlacedHost{Name: name(place.Host)})
		}
		p.Hosts[i].Ranks = append(p.Hosts[i].Ranks, rank)
		p.Ranks = append(p.Ranks, plan.PlacedRank{Rank: rank, LocalRank: place.LocalRank, CrossRank: place.CrossRank,
			CrossSize: place.CrossSize, Host: i})
	}
	return p, ids
}

// FirstWorld returns the first world of an elastic job if all of its hosts can be used.
func FirstWorld(policy elastic.Policy, hosts []elastic.DiscoveredHost) (plan.Placement, error) {
	machine := elastic.New(elastic.Config{Policy: policy})
	events := []elastic.Event{elastic.Discovered{Hosts: hosts}}
	var names []string
	for ; len(events) > 0; events = events[1:] {
		for _, a := range machine.Step(0, events[0]) {
			switch a := a.(type) {
			case elastic.StartHost:
				names = append(names, a.Name)
				events = append(events, elastic.HostUp{Host: a.Host})
			case elastic.Roster:
				p, _ := placementOf(a, func(id int) string { return names[id] })
				return p, nil
			}
		}
	}
	slots := 0
	for _, h := range hosts {
		slots += h.Slots
	}
	why := fmt.Sprintf("too few slots: %d needed, %d there", policy.NP, slots)
	return plan.Placement{}, failure.Elastic(elastic.TooFew, why)
}
