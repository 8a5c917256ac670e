package elastic

import (
	"fmt"
	"slices"
	"strings"
)

// slot is a free place for one process.
type slot struct {
	host  *daemon
	index int
	spare *process // that has it; nil for none
}

// free returns the slots that can be used now, host by host.
func (m *Machine) free() []slot {
	var out []slot
	for _, s := range m.sites {
		if s.daemon == nil || s.daemon.State != up || s.barred(m.job.Now) {
			continue
		}
		for i := range s.slots {
			if s.daemon.used[i] == nil && !m.bad(s, i) {
				out = append(out, slot{host: s.daemon, index: i})
			}
		}
	}
	return out
}

// firstSlots picks the slots of the first world, in the order of the ranks.
func (m *Machine) firstSlots(free []slot) []slot {
	if m.cfg.Ranks == nil {
		return free[:min(len(free), m.most(len(free)))]
	}
	taken := map[*daemon]int{}
	var out []slot
	for _, i := range m.cfg.Ranks {
		d := m.sites[i].daemon
		out = append(out, slot{host: d, index: taken[d]})
		taken[d]++
	}
	return out
}

// need returns how many processes the next world must have at least.
func (m *Machine) need() int {
	if m.job.Finished {
		return 1
	}
	return m.cfg.MinNP
}

// possible returns for how many processes a list of hosts that never changes still has room. A lost host counts,
// because it may come back; one that failed to start and was never up does not. Of a drained host those slots count in
// which ranks still are: they stay there as long as the job needs them.
func (m *Machine) possible() int {
	if m.job.Finished {
		return len(m.live())
	}
	n := 0
	for _, s := range m.sites {
		if !s.Met && s.Unmet.Failures > 0 {
			continue
		}
		for i := range s.Listed {
			if (i < s.slots || s.daemon.ranks(i)) && !m.badForGood(s, i) {
				n++
			}
		}
	}
	return n
}

// next returns the members of the next world: the present processes that stay, in their order, and the slots of those
// that join. Spares that wait in init come first. Where no process is lost, only they join, if spares are started: processes
// that are to leave stay until then.
// Free slots get a new process: with grow all that are free, otherwise no more than need requires.
//
// With withdraw, processes leave hosts that discovery has withdrawn, if enough others are there. Processes in banned
// slots leave in any case, except one that may be the only one with the state of the training: it leaves with the next
// world.
func (m *Machine) next(need int, grow, withdraw bool) (keep []*process, add []slot) {
	live := m.live()
	stays := map[*process]bool{}
	var fit []*process
	oldest := m.job.Epoch
	for _, p := range live {
		if !m.job.Finished && m.bad(p.host.site, p.Slot) {
			continue
		}
		fit = append(fit, p)
		if !withdraw || m.job.Finished || p.Slot < p.host.site.slots {
			stays[p], oldest = true, min(oldest, p.Since)
		}
	}
	var warm, cold []slot
	if !m.job.Finished {
		waiting, loading := m.spares()
		warm, cold = waiting, slices.Concat(loading, m.free())
	}
	add = slices.Concat(warm, cold)
	if m.cfg.Spares > 0 && !m.job.NoSpares && m.job.Broken == "" && (len(stays)+len(warm) >= need ||
		len(fit)+len(warm) >= need && m.sparesCome()) {
		add = warm
	}
	switch {
	case len(live) == 0:
	case len(stays) == 0 && len(add) == 0:
		return fit, nil // nothing takes their place: no reason to stop them
	case len(stays) == 0, !withdraw && live[0].Since < oldest && m.job.Kept < m.job.Epoch:
		stays[live[0]] = true
	}
	add = add[:min(len(add), max(m.most(len(stays)+len(warm)+len(cold))-len(stays), 0))]
	if !grow {
		add = add[:min(len(add), max(need-len(stays), len(warm)))]
	}
	for _, p := range live {
		if len(stays)+len(add) < need && slices.Contains(fit, p) {
			stays[p] = true
		}
		if stays[p] {
			keep = append(keep, p)
		}
	}
	return keep, add
}

func members(keep []*process, add []slot) string {
	var b strings.Builder
	for _, p := range keep {
		fmt.Fprint(&b, p.number, " ")
	}
	for _, s := range add {
		fmt.Fprint(&b, s.host.id, ":", s.index, " ")
	}
	return b.String()
}

// roster begins an epoch with the processes that stay and new ones.
func (m *Machine) roster(keep []*process, add []slot, reason string) {
	m.job.Epoch++
	m.asked = nil
	fresh := map[*process]bool{}
	world := keep
	for _, s := range add {
		p := s.spare
		if p == nil {
			p = m.newProcess(s)
			fresh[p] = true
		}
		p.Since = m.job.Epoch
		world = append(world, p)
	}
	stays := map[*process]bool{}
	member := map[*daemon]bool{}
	for _, p := range world {
		stays[p], member[p.host] = true, true
	}
	for _, p := range m.world {
		if !stays[p] {
			m.dismiss(p)
		}
	}
	if t := &m.job.Turnover; t.Until == 0 { // the processes that are there now are watched
		t.Until, t.Epoch, t.Since = m.job.Epoch, m.job.Epoch, m.job.Now
	}
	m.began = m.job.Now
	m.world, m.job.Committed, m.job.Broken, m.job.Offered, m.job.Waiting = world, false, "", "", false
	m.job.Start.Later = m.job.Epoch == 1 && m.cfg.RanksFirst
	m.emit(Roster{Epoch: m.job.Epoch, Places: places(world, fresh), Spares: m.sparePlaces(), Reason: reason,
		Later: m.job.Start.Later, Quiet: m.fixed()})
	for _, d := range m.daemons {
		if d.Member && !member[d] {
			m.drop(d) // its part in the old world is over; if it can be used again, it starts anew
		}
		d.Member = member[d]
	}
}

// newProcess numbers a process that is to start in a slot.
func (m *Machine) newProcess(s slot) *process {
	p := &process{Host: s.host.id, Slot: s.index, number: len(m.processes), host: s.host}
	m.processes = append(m.processes, p)
	s.host.used[s.index] = p
	return p
}

// places numbers the processes of a world. Hosts count in the order of their first rank.
func places(world []*process, fresh map[*process]bool) []ProcessPlace {
	local := map[*daemon]int{}
	var hosts []*daemon
	for _, p := range world {
		if local[p.host] == 0 {
			hosts = append(hosts, p.host)
		}
		local[p.host]++
	}
	seen := map[*daemon]int{}
	var out []ProcessPlace
	for rank, p := range world {
		place := ProcessPlace{Process: p.number, Rank: rank, LocalRank: seen[p.host], Host: p.host.id, Slot: p.Slot, New: fresh[p]}
		seen[p.host]++
		for _, h := range hosts {
			if h == p.host {
				place.CrossRank = place.CrossSize
			}
			if local[h] > place.LocalRank {
				place.CrossSize++
			}
		}
		out = append(out, place)
	}
	return out
}
