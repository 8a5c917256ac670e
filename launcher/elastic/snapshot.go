package elastic

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// snapshot lets a successor of the launcher go on where this one was. Pointers become indices.
type snapshot struct {
	jobState
	Sites     []*site    `json:"sites"`
	Daemons   []*daemon  `json:"daemons"`
	Processes []*process `json:"processes"`
	World     []int      `json:"world"`
}

// Snapshot encodes the state of the machine after the last Step. Restore needs the Config besides.
func (m *Machine) Snapshot() ([]byte, error) {
	s := snapshot{jobState: m.job, Sites: m.sites, Daemons: m.daemons, Processes: m.processes}
	for _, x := range m.sites {
		if x.Present = -1; x.daemon != nil {
			x.Present = x.daemon.id
		}
	}
	for _, p := range m.world {
		s.World = append(s.World, p.number)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write down who is in the job: %w", err)
	}
	return text, nil
}

// Restore returns the machine of a Snapshot, and the time of its last Step. Its time must go on from there.
func Restore(cfg Config, text []byte) (*Machine, time.Duration, error) {
	var s snapshot
	fail := func(err error) (*Machine, time.Duration, error) {
		return nil, 0, fmt.Errorf("read who is in the job: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return fail(err)
	}
	if slices.Contains(s.Sites, nil) || slices.Contains(s.Daemons, nil) || slices.Contains(s.Processes, nil) {
		return fail(errors.New("a host, a daemon or a process without its state"))
	}
	m := (&Machine{cfg: cfg, job: s.jobState, sites: s.Sites, daemons: s.Daemons, processes: s.Processes}).use()
	for _, x := range m.sites {
		if x.daemon = m.daemon(x.Present); x.Failed == nil {
			x.Failed = map[int]*ban{}
		}
		if x.Unfit == nil {
			x.Unfit = map[int]bool{}
		}
		x.offer()
		for _, b := range x.Failed {
			if b == nil {
				return fail(errors.New("a slot without its failures"))
			}
		}
	}
	for id, d := range m.daemons {
		if d.Site < 0 || d.Site >= len(m.sites) {
			return fail(errors.New("a daemon without a host"))
		}
		d.id, d.site, d.used = id, m.sites[d.Site], map[int]*process{}
	}
	for number, p := range m.processes {
		p.number, p.host = number, m.daemon(p.Host)
		if p.host == nil {
			return fail(errors.New("a process without a daemon"))
		}
		if !p.Exited {
			p.host.used[p.Slot] = p
		}
	}
	for _, number := range s.World {
		p := m.process(number)
		if p == nil {
			return fail(errors.New("a rank without a process"))
		}
		m.world = append(m.world, p)
	}
	return m, s.Now, nil
}

// Epoch returns the epoch of the last Roster.
func (m *Machine) Epoch() uint32 { return m.job.Epoch }

// Waits reports whether a process is a spare.
func (m *Machine) Waits(process int) bool {
	p := m.process(process)
	return p != nil && p.waits()
}

// Spares returns the processes that wait for their first world, as the last action listed them.
func (m *Machine) Spares() Spares { return Spares{m.job.Epoch, m.sparePlaces()} }

// World returns the places of the last Roster.
func (m *Machine) World() []ProcessPlace { return places(m.world, nil) }

// Member reports whether a host has a place in the last Roster.
func (m *Machine) Member(host int) bool {
	d := m.daemon(host)
	return d != nil && d.Member
}
