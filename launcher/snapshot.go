package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gorun/launcher/elastic"
	"gorun/rendezvous/wire"
)

// snapshot is what a successor needs to carry an elastic job on.
type snapshot struct {
	ID        string          `json:"id"`
	Secret    []byte          `json:"secret"`
	Hosts     []hostSnapshot  `json:"hosts"`     // by id
	Processes []int           `json:"processes"` // the host of each
	Exited    []int           `json:"exited"`
	Members   json.RawMessage `json:"members"` // a snapshot of the policy's machine
}

type hostSnapshot struct {
	Name    string `json:"name"`
	Slots   int    `json:"slots"`
	Session string `json:"session"`
	Ended   bool   `json:"ended"`
	Leaving bool   `json:"leaving"`
	// Moves is until when the host is believed to move, in the time of Members; 0 if it does not.
	Moves time.Duration `json:"moves,omitempty"`
}

// snapshot encodes the state of the job.
func (s *state) snapshot() ([]byte, error) {
	members, err := s.membership.policy.Snapshot()
	if err != nil {
		return nil, err
	}
	snap := snapshot{ID: s.template.ID, Secret: s.template.Secret, Processes: s.processes.hosts(), Members: members}
	for _, h := range s.hosts {
		x := hostSnapshot{Name: h.name, Slots: h.Job().Slots, Session: h.session, Ended: h.ended, Leaving: h.leaving}
		if until := s.alive.Moving(h.id); !until.IsZero() {
			x.Moves = until.Sub(s.membership.began)
		}
		snap.Hosts = append(snap.Hosts, x)
	}
	snap.Exited, _ = s.processes.exited()
	text, err := json.Marshal(snap)
	if err != nil {
		return nil, fmt.Errorf("write down the job: %w", err)
	}
	return text, nil
}

// restore begins where another launcher was.
func (s *state) restore(text []byte) error {
	var snap snapshot
	if err := json.Unmarshal(text, &snap); err != nil {
		return fmt.Errorf("take over job: %w", err)
	}
	if len(snap.Secret) != 32 || s.spec.Elastic == nil {
		return errors.New("take over job: it is not elastic, or has no secret")
	}
	s.template.ID, s.template.Secret = snap.ID, snap.Secret
	m := s.membership
	policy, now, err := elastic.Restore(m.config, snap.Members)
	if err != nil {
		return fmt.Errorf("take over job: %w", err)
	}
	m.policy, m.began, m.epoch = policy, time.Now().Add(-now), policy.Epoch()
	m.taken, m.untold = m.epoch, m.config.Spares > 0
	s.alive.Begin(time.Now()) // no host could be heard before
	for _, x := range snap.Hosts {
		m.names, m.slots[x.Name] = append(m.names, x.Name), x.Slots
	}
	for id, x := range snap.Hosts {
		h := s.addHost(x.Name)
		h.session, h.adopted, h.leaving, h.ended, h.spares = x.Session, true, x.Leaving, x.Ended, m.untold
		silence := time.Duration(0)
		if x.Moves > 0 {
			s.alive.Moves(id, m.began.Add(x.Moves))
			silence = s.alive.Lease(time.Now(), id, s.limits())
		}
		h.Adopt(x.Session, silence)
	}
	return s.restoreProcesses(snap)
}

// restoreProcesses takes the processes of a snapshot whose hosts are restored.
func (s *state) restoreProcesses(snap snapshot) error {
	for process, id := range snap.Processes {
		if id < 0 || id >= len(s.hosts) {
			return fmt.Errorf("take over job: process %d of host id %d", process, id)
		}
		s.processes.place(process, id)
		s.hosts[id].Own([]wire.Rank{{Process: process}})
		s.processes[process].spare = s.membership.policy.Waits(process)
		if err := s.membership.admit(process, s.hosts[id].name); err != nil {
			return err
		}
	}
	for _, process := range snap.Exited {
		if process < 0 || process >= len(s.processes) {
			return fmt.Errorf("take over job: process %d has ended, of %d", process, len(s.processes))
		}
		p := &s.processes[process]
		p.started, p.exited = true, true
	}
	return nil
}
