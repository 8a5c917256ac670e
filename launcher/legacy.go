package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorun/launcher/elastic"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// What another launcher needs to carry an elastic job on: it is given away before anything is done that follows from it.

// Keeper gives what another launcher would need to those who would begin it.
type Keeper interface {
	// Keep takes what takes the place of all before it, and how long hosts may be silent now, the launcher's too. It returns its number.
	Keep(legacy []byte, lease time.Duration) uint64
	// Kept delivers the number of the last one that is safe.
	Kept() <-chan uint64
	// Answering is how many there are to keep it, how many of them have answered within the lease, and for how long they wait who
	// are no majority.
	Answering(lease time.Duration) (of, left int, patience time.Duration)
}

// Adopter is a Dialer that can take over a daemon which another launcher has started.
type Adopter interface {
	// Adopt takes over the daemon of a session. The host may not answer for so long, 0 for as long as any host may.
	Adopt(ctx context.Context, host, session string, silence time.Duration) (*Daemon, error)
}

type legacy struct {
	ID        string          `json:"id"`
	Secret    []byte          `json:"secret"`
	Hosts     []legacyHost    `json:"hosts"`
	Processes []int           `json:"processes"` // the host of each
	Exited    []int           `json:"exited"`
	Members   json.RawMessage `json:"members"` // a snapshot of the policy's machine
}

type legacyHost struct {
	Name    string `json:"name"`
	Slots   int    `json:"slots"`
	Session string `json:"session"`
	Ended   bool   `json:"ended"`
	Leaving bool   `json:"leaving"`
	// Moves is until when one believes that it moves, in the time of Members; 0 if it does not.
	Moves time.Duration `json:"moves,omitempty"`
}

// failover is what keeps the job ready for another launcher.
type failover struct {
	pending  *pending // what waits for a snapshot to be safe, nil for nothing
	minority minority // for how long in vain
}

// pending is what is done when a snapshot is safe.
type pending struct {
	number uint64
	act    func()
}

// minority is how long something is pending while too few of those answer that make it safe.
type minority struct {
	waits  time.Duration
	looked time.Time
}

// look takes note of how it is now. Time in which this process stood still does not count: nobody could be heard.
func (m *minority) look(now time.Time, is bool) {
	if !is {
		*m = minority{}
		return
	}
	if !m.looked.IsZero() {
		m.waits += min(now.Sub(m.looked), 2*liveness.Default().LookInterval)
	}
	m.looked = now
}

// MinorityError ends a job that would have to go on in another world, of which too few hosts can be told to carry it on.
type MinorityError struct{ Of, Left int }

func (e *MinorityError) Error() string {
	return fmt.Sprintf("of %d hosts that decide who carries the job on, %d can: it cannot go on without those that were lost", e.Of, e.Left)
}

// listenKept ends a job which waits in vain for a legacy to be safe.
func (j *job) listenKept(now time.Time) {
	var of, left int
	var patience time.Duration
	if j.failover.pending != nil && !j.stopping {
		of, left, patience = j.spec.Keeper.Answering(j.lease())
	}
	told := j.failover.minority.waits > 0
	j.failover.minority.look(now, 2*left <= of && of > 0)
	switch {
	case j.failover.minority.waits == 0:
	case j.failover.minority.waits >= patience:
		j.stop(&MinorityError{of, left})
	case !told:
		j.spec.Note("gorun: of %d hosts that decide who carries the job on, %d can: nothing changes until more of them answer, and if none does the job ends in %v", of, left, patience)
	}
}

// kept is what delivers numbers, nil if nobody keeps anything.
func (j *job) kept() <-chan uint64 {
	if j.spec.Keeper == nil {
		return nil
	}
	return j.spec.Keeper.Kept()
}

// bequeath gives away what another launcher would need now. then, if it is not nil, follows when that is safe, and takes
// the place of what waited before it.
func (j *job) bequeath(then func()) {
	if j.spec.Keeper == nil {
		if then != nil {
			then()
		}
		return
	}
	members, err := j.change.policy.Snapshot()
	if err != nil {
		j.stop(err)
		return
	}
	l := legacy{ID: j.template.ID, Secret: j.template.Secret, Processes: j.processes.hosts(), Members: members}
	for _, h := range j.hosts {
		x := legacyHost{Name: h.name, Slots: h.job.Slots, Session: h.session, Ended: h.ended, Leaving: h.leaving}
		if moves := j.alive.Moving(h.id); !moves.IsZero() {
			x.Moves = moves.Sub(j.change.began)
		}
		l.Hosts = append(l.Hosts, x)
	}
	l.Exited, _ = j.processes.exited()
	text, err := json.Marshal(l)
	if err != nil {
		j.stop(fmt.Errorf("write down the job: %w", err))
		return
	}
	number := j.spec.Keeper.Keep(text, j.lease())
	if then != nil {
		j.failover.pending = &pending{number, then}
	}
}

// safe does what waited for a legacy to be safe.
func (j *job) safe(number uint64) {
	if p := j.failover.pending; p != nil && number >= p.number {
		j.failover.pending = nil
		p.act()
	}
}

// inherit begins where another launcher was.
func (j *job) inherit(text []byte) error {
	var l legacy
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("take over job: %w", err)
	}
	if len(l.Secret) != 32 || j.spec.Elastic == nil {
		return errors.New("take over job: it is not elastic, or has no secret")
	}
	j.template.ID, j.template.Secret = l.ID, l.Secret
	policy, now, err := elastic.Restore(j.change.config, l.Members)
	if err != nil {
		return fmt.Errorf("take over job: %w", err)
	}
	j.change.policy, j.change.began = policy, time.Now().Add(-now)
	j.epoch = policy.Epoch()
	j.alive.Begin(time.Now()) // nobody could be heard before
	for _, x := range l.Hosts {
		j.change.names, j.change.slots[x.Name] = append(j.change.names, x.Name), x.Slots
	}
	for id, x := range l.Hosts {
		h := j.addHost(x.Name)
		h.session, h.adopted, h.leaving = x.Session, true, x.Leaving
		if x.Ended {
			h.ended = true
		}
		if x.Moves > 0 {
			j.alive.Moves(id, j.change.began.Add(x.Moves))
			h.silence = j.leaseOf(time.Now(), h)
		}
	}
	for process, id := range l.Processes {
		if id < 0 || id >= len(j.hosts) {
			return fmt.Errorf("take over job: process %d of host id %d", process, id)
		}
		j.processes.place(process, id)
		j.hosts[id].own([]wire.Rank{{Process: process}})
		if err := j.change.admit(process, j.hosts[id].name); err != nil {
			return err
		}
	}
	for _, process := range l.Exited {
		if process < 0 || process >= len(j.processes) {
			return fmt.Errorf("take over job: process %d has ended, of %d", process, len(j.processes))
		}
		p := &j.processes[process]
		p.started, p.exited = true, true
	}
	return nil
}

// unaccounted is true while a host that was taken over has not said how it stands: no world can be made without that.
func (j *job) unaccounted() bool {
	return slices.ContainsFunc(j.hosts, func(h *host) bool {
		return h.adopted && !h.leaving && h.evicted == nil && h.ready == nil && !h.ended
	})
}

// accounted takes the end of a daemon's account.
func (j *job) accounted(h *host, a *wire.Account) {
	if a.HasJob && a.Epoch < j.epoch && j.change.policy.Member(h.id) {
		j.decide(elastic.Interrupted{Why: fmt.Sprintf("the launcher was lost before %s knew the members of epoch %d", h.name, j.epoch)})
	}
}
