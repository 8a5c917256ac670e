package elastic

import (
	"slices"
	"time"
)

// discovered takes a new list of hosts.
func (m *Machine) discovered(list []DiscoveredHost) {
	slots, born := map[string]int{}, map[string]int64{}
	for _, h := range list {
		born[h.Name] = h.Born
		if m.site(h.Name) == nil {
			m.sites = append(m.sites, &site{Name: h.Name, Failed: map[int]*ban{}, Unfit: map[int]bool{}})
		}
		slots[h.Name] += h.Slots
	}
	for _, s := range m.sites {
		s.Listed = max(slots[s.Name], 0)
		s.offer()
		if b := born[s.Name]; b != 0 && b != s.Born {
			s.Born, s.Lost, s.Unmet = b, ban{}, ban{}
			clear(s.Failed)
			clear(s.Unfit)
		}
		m.withdraw(s)
	}
}

// offer sets the slots that may be used.
func (s *site) offer() {
	if s.slots = s.Listed; s.Drained {
		s.slots = 0
	}
}

// withdraw forgets what is known of a host, and ends its daemon, if none of its slots may be used. Ranks of the present
// world leave it at a commit.
func (m *Machine) withdraw(s *site) {
	if s.slots > 0 {
		return
	}
	s.Unmet = ban{} // whatever is offered under this name later is taken for another host
	if m.cfg.CooldownMin == 0 {
		s.Lost = ban{}
	}
	for _, b := range s.Failed {
		b.Forever = false
	}
	clear(s.Unfit)
	if s.daemon != nil && !s.daemon.Member {
		m.drop(s.daemon)
	}
}

// drain takes the order to use a host no more, or to use it again.
func (m *Machine) drain(ev Drain) {
	if s := m.site(ev.Host); s != nil && (!ev.Move || s.Moves || !s.Drained && !ev.Undo) {
		s.Drained, s.Moves = !ev.Undo, ev.Move && !ev.Undo
		s.offer()
		m.withdraw(s)
	}
}

// Departure is how far a host that is drained has come.
type Departure struct {
	Drained bool  // it is, and not used again
	Left    []int // processes that run there, ascending
	Kept    int   // of these the next world cannot do without, as there is no room for others
	Loading bool  // those that take their place load their program
}

// Departure returns how far a host has come.
func (m *Machine) Departure(host string) (d Departure) {
	s := m.site(host)
	if s == nil {
		return d // it was never listed
	}
	d.Drained = s.Drained
	if s.daemon == nil {
		return d
	}
	for _, p := range s.daemon.used {
		d.Left = append(d.Left, p.number)
	}
	slices.Sort(d.Left)
	keep, add := m.next(m.need(), true, true)
	for _, p := range keep {
		if p.host == s.daemon {
			d.Kept++
		}
	}
	d.Loading = m.loading(len(keep) - d.Kept + len(add))
	return d
}

// site returns the host of a name, nil if it was never listed.
func (m *Machine) site(name string) *site {
	if i := slices.IndexFunc(m.sites, func(s *site) bool { return s.Name == name }); i >= 0 {
		return m.sites[i]
	}
	return nil
}

// startHosts sees to it that every host that can be used has a daemon, spare ones too: they are warm
// when they are needed.
func (m *Machine) startHosts() {
	for i, s := range m.sites {
		if s.daemon != nil || s.barred(m.job.Now) || m.job.Finished {
			continue
		}
		usable := false
		for slot := range s.slots {
			usable = usable || !m.bad(s, slot)
		}
		if usable {
			if s.daemon, s.never = s.never, nil; s.daemon == nil {
				s.daemon = &daemon{Site: i, id: len(m.daemons), site: s, used: map[int]*process{}}
				m.daemons = append(m.daemons, s.daemon)
			}
			s.daemon.State, s.daemon.Born, s.daemon.Failed = starting, s.Born, false
			m.emit(StartHost{s.daemon.id, s.Name})
		}
	}
}

// barred is true for a host that is not to be used yet.
func (s *site) barred(now time.Duration) bool { return s.Lost.holds(now) || s.Unmet.holds(now) }

func (m *Machine) daemon(id int) *daemon {
	if id < 0 || id >= len(m.daemons) {
		return nil
	}
	return m.daemons[id]
}

// drop stops a daemon and all that runs there.
func (m *Machine) drop(d *daemon) {
	if d.State < dropped {
		d.State, d.Member = dropped, false
		m.emit(DropHost{d.id})
	}
}

// hostLost notes that a daemon is gone.
func (m *Machine) hostLost(d *daemon, ev HostLost) {
	asked, unmet := d.State == dropped, d.State == starting
	d.State, d.site.daemon = gone, nil
	for _, p := range d.used {
		p.Exited = true
	}
	clear(d.used)
	if unmet {
		d.site.never = d
	}
	if !asked {
		m.rules.lost(d, ev, unmet)
	}
}
