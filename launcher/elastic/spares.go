package elastic

import (
	"fmt"
	"slices"
	"time"
)

// A spare is a process that has started, and waits in init for its first world. It takes the place of a process that is
// lost or leaves, so that the others do not wait until a new one has loaded its program. Where the world may grow, what
// joins it starts as a spare too. Spares have slots that the world does not use, on hosts without ranks if there are any.

// loadLimit is how long after its start a spare may take to reach init. Then it counts as if it had: perhaps it is one
// that does not report it.
const loadLimit = 30 * time.Second

// waits reports whether a process is a spare.
func (p *process) waits() bool { return p.Since == 0 && !p.Exited && !p.Dismissed }

// warm reports whether a spare can enter a world at once.
func (m *Machine) warm(p *process) bool { return p.Ready || m.job.Now-p.Began >= loadLimit }

// fits reports whether a spare may stay where it is.
func (m *Machine) fits(p *process) bool {
	d := p.host
	return d.State == up && !d.Failed && p.Slot < d.site.slots && !m.bad(d.site, p.Slot)
}

// spares returns the spares that can be used: those that can enter a world at once, on hosts that are in it first, and
// the others.
func (m *Machine) spares() (warm, loading []slot) {
	if m.cfg.Spares == 0 {
		return nil, nil
	}
	for _, p := range m.processes {
		switch {
		case !p.waits() || !m.fits(p) || m.cfg.Hears != nil && !m.cfg.Hears(p.host.id):
		case m.warm(p):
			warm = append(warm, slot{p.host, p.Slot, p})
		default:
			loading = append(loading, slot{p.host, p.Slot, p})
		}
	}
	slices.SortStableFunc(warm, func(a, b slot) int { return boolInt(b.host.Member) - boolInt(a.host.Member) })
	return warm, loading
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// most returns how many processes the next world may have where so many could run. It leaves room for spares, unless it
// would have fewer than the present one for that.
func (m *Machine) most(usable int) int {
	if m.cfg.Spares == 0 || m.job.NoSpares {
		if m.cfg.MaxNP == 0 {
			return usable
		}
		return m.cfg.MaxNP
	}
	return min(max(m.cfg.NP, len(m.world), usable-m.cfg.Spares), m.cfg.MaxNP)
}

// tendSpares lets spares go that are not wanted any more, and starts others once the ranks of the world run: as many as
// the user wants, and one for each process that the world lacks.
func (m *Machine) tendSpares() {
	if m.cfg.Spares == 0 || m.job.Epoch == 0 || m.job.Ended {
		return
	}
	changed, have := false, 0
	for _, p := range m.processes {
		switch {
		case !p.waits():
		case m.job.Finished || !m.fits(p):
			p.Dismissed, changed = true, true
		default:
			have++
		}
	}
	if m.job.Committed && m.job.Broken == "" && !m.job.Finished && !m.job.NoSpares && !m.allLeft() {
		keep, _ := m.next(m.need(), true, true)
		keep = slices.DeleteFunc(keep, func(p *process) bool { return p.Slot >= p.host.site.slots }) // who stays only until others are there
		free := m.spareSlots()
		want := m.cfg.Spares + max(m.most(len(keep)+have+len(free))-len(keep), 0)
		for _, s := range free[:min(len(free), max(want-have, 0))] {
			s.spare = m.newProcess(s)
			s.spare.Began, changed = m.job.Now, true
			have++
		}
		m.noteShortage(m.cfg.Spares - have)
	}
	if changed {
		m.emit(Spares{m.job.Epoch, m.sparePlaces()})
	}
}

// Replaceable reports whether spares on other hosts can take the place of all ranks of a host at once.
func (m *Machine) Replaceable(host string) bool {
	warm, _ := m.spares()
	spares := 0
	for _, s := range warm {
		if s.host.site.Name != host {
			spares++
		}
	}
	ranks := 0
	for _, p := range m.live() {
		if p.host.site.Name == host {
			ranks++
		}
	}
	return ranks > 0 && spares >= ranks
}

// loading reports whether a world that would be smaller than the present one waits for spares that load their program.
func (m *Machine) loading(size int) bool {
	_, loading := m.spares()
	return size < len(m.live()) && len(loading) > 0
}

// sparesCome reports whether spares load their program, or may start to.
func (m *Machine) sparesCome() bool {
	_, loading := m.spares()
	return len(loading) > 0 || len(m.spareSlots()) > 0
}

// spareSlots returns the free slots in which no spare has failed before init, those first that are on hosts with the
// fewest processes.
func (m *Machine) spareSlots() []slot {
	free := slices.DeleteFunc(m.free(), func(s slot) bool { return s.host.site.Unfit[s.index] })
	slices.SortStableFunc(free, func(a, b slot) int {
		if a.host.Member != b.host.Member {
			return boolInt(a.host.Member) - boolInt(b.host.Member)
		}
		return len(a.host.used) - len(b.host.used)
	})
	return free
}

// noteShortage notes, once, that spares lack slots.
func (m *Machine) noteShortage(lacking int) {
	starting := slices.ContainsFunc(m.daemons, func(d *daemon) bool { return d.State == starting })
	switch {
	case lacking <= 0:
		m.sparesNoted = false
	case !m.sparesNoted && !starting && m.job.Now-m.began >= settle:
		m.sparesNoted = true
		m.emit(Note{fmt.Sprintf("no slot is free for %d of %d spares", min(lacking, m.cfg.Spares), m.cfg.Spares)})
	}
}

// sparePlaces returns the places of all spares. Their ranks follow those of the world. A spare has the local rank of its
// slot until its world begins.
func (m *Machine) sparePlaces() (out []ProcessPlace) {
	for _, p := range m.processes {
		if p.waits() {
			out = append(out, ProcessPlace{Process: p.number, Rank: len(m.world) + len(out), LocalRank: p.Slot, CrossSize: 1,
				Host: p.host.id, Slot: p.Slot, New: !p.Listed})
			p.Listed = true
		}
	}
	return out
}

// mostUnready is how many spares in a row may fail before init. Then others would probably do the same.
const mostUnready = 2

// spareExited takes the end of a spare. One that ends without an error, before it was in a world, has a program that asks
// for none: others would do the same. One that fails before init says nothing about ranks: its slot gets no other spare,
// and may still get a rank.
func (m *Machine) spareExited(p *process, ev Exited) {
	at := fmt.Sprintf("a spare on %s", p.host.site.Name)
	switch {
	case p.Dismissed || ev.Asked:
	case ev.Code == 0:
		m.job.NoSpares = true
		m.emit(Note{at + " has ended before init: no other one is started"})
	case !p.Ready:
		p.host.site.Unfit[p.Slot] = true
		m.job.Unready++
		what := "that slot gets no other one"
		if m.job.Unready >= mostUnready {
			m.job.NoSpares, what = true, "so did the one before: no other one is started"
		}
		how := fmt.Sprintf("has exited with code %d before init, and its output says why", ev.Code)
		if ev.Why != "" {
			how = "cannot start: " + ev.Why
		}
		m.emit(Note{fmt.Sprintf("%s, slot %d, %s: %s", at, p.Slot, how, what)})
	default:
		m.suspect(p.host.site, p.Slot, ev.Code)
	}
}
