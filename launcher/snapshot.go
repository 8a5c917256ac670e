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
func (j *job) snapshot() ([]byte, error) {
	members, err := j.membership.policy.Snapshot()
	if err != nil {
		return nil, err
	}
	s := snapshot{ID: j.template.ID, Secret: j.template.Secret, Processes: j.processes.hosts(), Members: members}
	for _, h := range j.hosts {
		x := hostSnapshot{Name: h.name, Slots: h.Job().Slots, Session: h.session, Ended: h.ended, Leaving: h.leaving}
		if until := j.alive.Moving(h.id); !until.IsZero() {
			x.Moves = until.Sub(j.membership.began)
		}
		s.Hosts = append(s.Hosts, x)
	}
	s.Exited, _ = j.processes.exited()
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write down the job: %w", err)
	}
	return text, nil
}

// restore begins where another launcher was.
func (j *job) restore(text []byte) error {
	var s snapshot
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("take over job: %w", err)
	}
	if len(s.Secret) != 32 || j.spec.Elastic == nil {
		return errors.New("take over job: it is not elastic, or has no secret")
	}
	j.template.ID, j.template.Secret = s.ID, s.Secret
	m := j.membership
	policy, now, err := elastic.Restore(m.config, s.Members)
	if err != nil {
		return fmt.Errorf("take over job: %w", err)
	}
	m.policy, m.began, m.epoch = policy, time.Now().Add(-now), policy.Epoch()
	j.alive.Begin(time.Now()) // no host could be heard before
	for _, x := range s.Hosts {
		m.names, m.slots[x.Name] = append(m.names, x.Name), x.Slots
	}
	for id, x := range s.Hosts {
		h := j.addHost(x.Name)
		h.session, h.adopted, h.leaving, h.ended = x.Session, true, x.Leaving, x.Ended
		silence := time.Duration(0)
		if x.Moves > 0 {
			j.alive.Moves(id, m.began.Add(x.Moves))
			silence = j.leaseOf(time.Now(), h)
		}
		h.Adopt(x.Session, silence)
	}
	return j.restoreProcesses(s)
}

// restoreProcesses takes the processes of a snapshot whose hosts are restored.
func (j *job) restoreProcesses(s snapshot) error {
	for process, id := range s.Processes {
		if id < 0 || id >= len(j.hosts) {
			return fmt.Errorf("take over job: process %d of host id %d", process, id)
		}
		j.processes.place(process, id)
		j.hosts[id].Own([]wire.Rank{{Process: process}})
		if err := j.membership.admit(process, j.hosts[id].name); err != nil {
			return err
		}
	}
	for _, process := range s.Exited {
		if process < 0 || process >= len(j.processes) {
			return fmt.Errorf("take over job: process %d has ended, of %d", process, len(j.processes))
		}
		p := &j.processes[process]
		p.started, p.exited = true, true
	}
	return nil
}
