package standing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"gorun/rendezvous/audit"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/wire"
)

// Failover of detached jobs: this host stores what a successor of the launcher would need, and votes for the host that
// starts one. Package authority decides. A lock protects its state machines, which have little to do.

const (
	// watchEvery is the interval between ticks of the electors.
	watchEvery = 250 * time.Millisecond
	// ballot is how long an elector may take to answer.
	ballot = 3 * time.Second
)

// Failover stores the state of jobs whose launchers may be lost, and starts their successors.
type Failover interface {
	// Load returns the saved states. Save saves one so that it survives a crash.
	Load() ([]authority.State, error)
	Save(authority.State) error
	// HasLauncher reports whether a launcher of the job runs on this host.
	HasLauncher(authority.State) bool
	// TakeOver starts a launcher that continues the job. It does not wait for it.
	TakeOver(authority.State, authority.Snapshot)
	// QuorumLost records that the job has ended, as only so many electors are left.
	QuorumLost(s authority.State, left int) error
	// QuorumBack withdraws that record, if there is one.
	QuorumBack(authority.State) error
}

// electors are the electors on this host, by job.
type electors struct {
	mu   sync.Mutex
	jobs map[string]*elector
}

type elector struct {
	*authority.Elector
	asking map[string]bool // electors whose answers are pending
}

// now returns the time as the electors count it, by the monotonic clock: a wall clock that is set must not end leases.
func (s *server) now() time.Duration { return time.Since(s.born) }

// loadElectors restores the electors from what was saved.
func (s *server) loadElectors() error {
	s.electors.mu.Lock()
	defer s.electors.mu.Unlock()
	s.electors.jobs = map[string]*elector{}
	if s.cfg.Failover == nil {
		return nil
	}
	saved, err := s.cfg.Failover.Load()
	for _, state := range saved {
		s.electors.jobs[state.Job] = s.newElector(state)
	}
	return err
}

func (s *server) newElector(state authority.State) *elector {
	return &elector{authority.NewElector(s.cfg.Name, state, s.now()), map[string]bool{}}
}

// standbys returns the jobs that this host may take over and that have not ended.
func (s *server) standbys() (out []Standby) {
	s.electors.mu.Lock()
	defer s.electors.mu.Unlock()
	for _, h := range s.electors.jobs {
		if state := h.State(); !state.Over && state.Value != nil && slices.Contains(state.Electors, s.cfg.Name) {
			out = append(out, Standby{state, s.born.Add(min(h.Heard(), s.now()))})
		}
	}
	return out
}

// elect answers a launcher or a candidate.
func (s *server) elect(conn net.Conn, job string, ev authority.Event) {
	if s.cfg.Failover == nil || job == "" {
		s.refuse(conn, "", "%s keeps nothing for jobs", s.cfg.Name)
		return
	}
	s.electors.mu.Lock()
	h := s.electors.jobs[job]
	if h == nil {
		h = s.newElector(authority.State{})
	}
	a, err := s.step(h, ev)
	if err == nil && h.State().Job == job {
		s.electors.jobs[job] = h
	}
	s.electors.mu.Unlock()
	if err != nil {
		s.refuse(conn, "", "%v", err)
		return
	}
	if a.Answer != nil {
		s.answer(conn, a.Answer)
	}
}

// step passes an event to an elector. It is called with the electors' lock held.
func (s *server) step(h *elector, ev authority.Event) (authority.Actions, error) {
	a, err := h.Take(s.now(), ev, s.cfg.Failover.Save)
	if err != nil {
		s.cfg.Log.Warn("keep job", "err", err)
		return a, err
	}
	if a.QuorumBack {
		if err := s.cfg.Failover.QuorumBack(h.State()); err != nil {
			s.cfg.Log.Warn("take back that a job was deserted", "job", h.State().Job, "err", err)
		}
	}
	return a, nil
}

// runElectors ticks the electors until ctx ends.
func (s *server) runElectors(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if s.cfg.Failover == nil {
			continue
		}
		s.electors.mu.Lock()
		for _, h := range s.electors.jobs {
			state := h.State()
			if state.Over {
				continue
			}
			gone := state.Holder == s.cfg.Name && !s.cfg.Failover.HasLauncher(state)
			s.act(ctx, &asking, h, authority.Event{Tick: &authority.Tick{LauncherGone: gone}})
		}
		s.electors.mu.Unlock()
	}
}

// act passes an event to an elector and performs its actions. It is called with the lock held.
func (s *server) act(ctx context.Context, asking *sync.WaitGroup, h *elector, ev authority.Event) {
	a, err := s.step(h, ev)
	if err != nil {
		return
	}
	for _, name := range a.Of {
		addr := s.addressOf(name)
		if addr == "" || h.asking[name] {
			continue
		}
		h.asking[name] = true
		asking.Go(func() {
			limit, cancel := context.WithTimeout(ctx, ballot)
			defer cancel()
			answer, _ := s.client().ask(limit, addr, a.Ask)
			s.electors.mu.Lock()
			defer s.electors.mu.Unlock()
			delete(h.asking, name)
			if v, ok := answer.(*wire.Voted); ok {
				s.act(ctx, asking, h, authority.Event{Voted: &authority.Voted{From: name, Voted: *v}})
			}
		})
	}
	if a.QuorumLost > 0 {
		if err := s.cfg.Failover.QuorumLost(h.State(), a.QuorumLost); err != nil {
			s.cfg.Log.Warn("keep that a job was deserted", "job", h.State().Job, "err", err)
		}
	}
	if a.Lead != nil {
		state := h.State()
		s.cfg.Log.Info("carries a job on", "job", state.Job, "term", a.Lead.Term, "former", state.Holder)
		s.note(audit.Entry{What: "take over", Job: state.Job, Host: state.Holder})
		s.cfg.Failover.TakeOver(state, *a.Lead)
	}
}

func (s *server) client() Client { return Client{Key: s.cfg.Key, Version: s.cfg.Version} }

// addressOf returns the address of a host's daemon, "" if the host is not seen.
func (s *server) addressOf(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.queue.hosts {
		if h.Host == name {
			return h.Addr
		}
	}
	return ""
}

// Keep sends an elector what a successor of the launcher would need.
func (c Client) Keep(ctx context.Context, addr string, k *wire.Keep) (*wire.Kept, error) {
	ctx, cancel := context.WithTimeout(ctx, ballot)
	defer cancel()
	msg, err := c.ask(ctx, addr, k)
	switch msg := msg.(type) {
	case *wire.Kept:
		return msg, nil
	case *wire.Refused:
		return nil, &RefusedError{msg.Text, msg.Hint, msg.Small}
	case nil:
		if err == nil {
			err = errors.New("no answer")
		}
		return nil, err
	}
	return nil, fmt.Errorf("unexpected %T", msg)
}
