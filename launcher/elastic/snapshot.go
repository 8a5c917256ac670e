package elastic

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	Name    string       `json:"name"`
	Slots   int          `json:"slots"` // as discovered
	Drained bool         `json:"drained,omitempty"`
	Moves   bool         `json:"moves,omitempty"`
	Born    int64        `json:"born"`
	Daemon  int          `json:"daemon"` // -1 for none
	Met     bool         `json:"met"`
	Lost    ban          `json:"lost"`
	Unmet   ban          `json:"unmet"`
	Failed  map[int]*ban `json:"failed"`
	Unfit   map[int]bool `json:"unfit,omitempty"`
}

type daemonSnapshot struct {
	Site   int           `json:"site"`
	Born   int64         `json:"born"`
	Since  time.Duration `json:"since"`
	State  state         `json:"state"`
	Member bool          `json:"member"`
	Failed bool          `json:"failed"`
	// Entered is true once it has been in a world.
	Entered bool `json:"entered"`
}

type processSnapshot struct {
	Host      int    `json:"host"`
	Slot      int    `json:"slot"`
	Started   bool   `json:"started"`
	Exited    bool   `json:"exited"`
	OK        bool   `json:"ok"`
	Dismissed bool   `json:"dismissed"`
	Since     uint32 `json:"since"`
	Left      uint32 `json:"left"`

	Ready  bool          `json:"ready,omitempty"`
	Began  time.Duration `json:"began,omitempty"`
	Listed bool          `json:"listed,omitempty"`
}

// Snapshot encodes the state of the machine after the last Step. Restore needs the Config besides.
func (m *Machine) Snapshot() ([]byte, error) {
	s := snapshot{jobState: m.job}
	for _, x := range m.sites {
		site := siteSnapshot{Name: x.name, Slots: x.listed, Drained: x.drained, Moves: x.moves, Born: x.born, Daemon: -1, Met: x.met,
			Lost: x.lost, Unmet: x.unmet, Failed: x.failed, Unfit: x.unfit}
		if x.daemon != nil {
			site.Daemon = x.daemon.id
		}
		s.Sites = append(s.Sites, site)
	}
	for _, d := range m.daemons {
		site := slices.Index(m.sites, d.site)
		s.Daemons = append(s.Daemons, daemonSnapshot{site, d.born, d.since, d.state, d.member, d.failed, d.entered})
	}
	for _, p := range m.processes {
		s.Processes = append(s.Processes,
			processSnapshot{p.host.id, p.slot, p.started, p.exited, p.ok, p.dismissed, p.since, p.left, p.ready, p.began, p.listed})
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
		site := &site{name: x.Name, listed: x.Slots, drained: x.Drained, moves: x.Moves, born: x.Born, met: x.Met, lost: x.Lost,
			unmet: x.Unmet, failed: map[int]*ban{}, unfit: map[int]bool{}}
		maps.Copy(site.unfit, x.Unfit)
		site.offer()
		for slot, b := range x.Failed {
			if b == nil {
				return fail(errors.New("a slot without its failures"))
			}
			site.failed[slot] = b
		}
		m.sites = append(m.sites, site)
	}
	for id, d := range s.Daemons {
		if d.Site < 0 || d.Site >= len(m.sites) {
			return fail(errors.New("a daemon without a host"))
		}
		m.daemons = append(m.daemons, &daemon{id: id, site: m.sites[d.Site], born: d.Born, since: d.Since, state: d.State,
			member: d.Member, failed: d.Failed, entered: d.Entered, used: map[int]*process{}})
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
		p := &process{number: number, slot: x.Slot, host: d, started: x.Started, exited: x.Exited, ok: x.OK,
			dismissed: x.Dismissed, since: x.Since, left: x.Left, ready: x.Ready, began: x.Began, listed: x.Listed}
		if !p.exited {
			d.used[p.slot] = p
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
	return d != nil && d.member
}
