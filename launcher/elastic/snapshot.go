package elastic

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A snapshot lets a successor of the launcher go on where this one was. Pointers become indices.

type snapshot struct {
	jobState
	Sites     []siteSnapshot    `json:"sites"`
	Daemons   []daemonSnapshot  `json:"daemons"`
	Processes []processSnapshot `json:"processes"`
	World     []int             `json:"world"`
}

type siteSnapshot struct {
	siteState
	Daemon int `json:"daemon"` // -1 for none
}

type daemonSnapshot struct {
	daemonState
	Site int `json:"site"`
}

type processSnapshot struct {
	processState
	Host int `json:"host"`
}

// Snapshot encodes the state of the machine after the last Step. Restore needs the Config besides.
func (m *Machine) Snapshot() ([]byte, error) {
	s := snapshot{jobState: m.job}
	for _, x := range m.sites {
		site := siteSnapshot{x.siteState, -1}
		if x.daemon != nil {
			site.Daemon = x.daemon.id
		}
		s.Sites = append(s.Sites, site)
	}
	for _, d := range m.daemons {
		s.Daemons = append(s.Daemons, daemonSnapshot{d.daemonState, slices.Index(m.sites, d.site)})
	}
	for _, p := range m.processes {
		s.Processes = append(s.Processes, processSnapshot{p.processState, p.host.id})
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
	m := (&Machine{cfg: cfg, job: s.jobState}).use()
	for _, x := range s.Sites {
		site := &site{siteState: x.siteState}
		if site.offer(); site.Failed == nil {
			site.Failed = map[int]*ban{}
		}
		if site.Unfit == nil {
			site.Unfit = map[int]bool{}
		}
		for _, b := range site.Failed {
			if b == nil {
				return fail(errors.New("a slot without its failures"))
			}
		}
		m.sites = append(m.sites, site)
	}
	for id, d := range s.Daemons {
		if d.Site < 0 || d.Site >= len(m.sites) {
			return fail(errors.New("a daemon without a host"))
		}
		m.daemons = append(m.daemons, &daemon{daemonState: d.daemonState, id: id, site: m.sites[d.Site], used: map[int]*process{}})
	}
	for i, x := range s.Sites {
		if d := m.daemon(x.Daemon); d != nil {
			m.sites[i].daemon = d
		}
	}
	for number, x := range s.Processes {
		d := m.daemon(x.Host)
		if d == nil {
			return fail(errors.New("a process without a daemon"))
		}
		p := &process{processState: x.processState, number: number, host: d}
		if !p.Exited {
			d.used[p.Slot] = p
		}
		m.processes = append(m.processes, p)
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
