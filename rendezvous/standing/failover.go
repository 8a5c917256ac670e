package standing

import (
	"context"
	"log/slog"
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
	name     string   // of this host
	failover Failover // nil: it stores nothing
	log      *slog.Logger
	born     time.Time
	note     func(audit.Entry)
	ask      func(ctx context.Context, host string, m wire.Message) (wire.Message, error)

	mu   sync.Mutex
	jobs map[string]*elector
}

type elector struct {
	*authority.Elector
	asking map[string]bool // electors whose answers are pending
}

// now returns the time as the electors count it, by the monotonic clock: a wall clock that is set must not end leases.
func (e *electors) now() time.Duration { return time.Since(e.born) }

// load restores the electors from what was saved.
func (e *electors) load() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failover == nil {
		return nil
	}
	saved, err := e.failover.Load()
	for _, state := range saved {
		e.jobs[state.Job] = e.newElector(state)
	}
	return err
}

func (e *electors) newElector(state authority.State) *elector {
	return &elector{authority.NewElector(e.name, state, e.now()), map[string]bool{}}
}

// standbys returns the jobs that this host may take over and that have not ended.
func (e *electors) standbys() (out []Standby) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range e.jobs {
		if state := h.State(); !state.Over && state.Value != nil && slices.Contains(state.Electors, e.name) {
			out = append(out, Standby{state, e.born.Add(min(h.Heard(), e.now()))})
		}
	}
	return out
}

// elect answers a launcher or a candidate.
func (e *electors) elect(conn net.Conn, job string, ev authority.Event) {
	if e.failover == nil || job == "" {
		refuse(conn, "", "%s keeps nothing for jobs", e.name)
		return
	}
	e.mu.Lock()
	h := e.jobs[job]
	if h == nil {
		h = e.newElector(authority.State{})
	}
	a, err := e.step(h, ev)
	if err == nil && h.State().Job == job {
		e.jobs[job] = h
	}
	e.mu.Unlock()
	if err != nil {
		refuse(conn, "", "%v", err)
		return
	}
	if a.Answer != nil {
		answer(conn, a.Answer)
	}
}

// step passes an event to an elector. It is called with the electors' lock held.
func (e *electors) step(h *elector, ev authority.Event) (authority.Actions, error) {
	a, err := h.Take(e.now(), ev, e.failover.Save)
	if err != nil {
		e.log.Warn("keep job", "err", err)
		return a, err
	}
	if a.QuorumBack {
		if err := e.failover.QuorumBack(h.State()); err != nil {
			e.log.Warn("take back that a job was deserted", "job", h.State().Job, "err", err)
		}
	}
	return a, nil
}

// run ticks the electors until ctx ends.
func (e *electors) run(ctx context.Context) {
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
		if e.failover == nil {
			continue
		}
		e.mu.Lock()
		for _, h := range e.jobs {
			state := h.State()
			if state.Over {
				continue
			}
			gone := state.Holder == e.name && !e.failover.HasLauncher(state)
			e.act(ctx, &asking, h, authority.Tick{LauncherGone: gone})
		}
		e.mu.Unlock()
	}
}

// act passes an event to an elector and performs its actions. It is called with the lock held.
func (e *electors) act(ctx context.Context, asking *sync.WaitGroup, h *elector, ev authority.Event) {
	a, err := e.step(h, ev)
	if err != nil {
		return
	}
	patience := authority.Patient(ballot, len(h.State().Value)) // theirs is as long
	for _, name := range a.Of {
		if h.asking[name] {
			continue
		}
		h.asking[name] = true
		asking.Go(func() {
			limit, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			answer, _ := e.ask(limit, name, a.Ask)
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(h.asking, name)
			if v, ok := answer.(*wire.Voted); ok {
				e.act(ctx, asking, h, authority.Voted{From: name, Voted: *v})
			}
		})
	}
	if a.QuorumLost > 0 {
		if err := e.failover.QuorumLost(h.State(), a.QuorumLost); err != nil {
			e.log.Warn("keep that a job was deserted", "job", h.State().Job, "err", err)
		}
	}
	if a.Lead != nil {
		state := h.State()
		e.log.Info("carries a job on", "job", state.Job, "term", a.Lead.Term, "former", state.Holder)
		e.note(audit.Entry{What: "take over", Job: state.Job, Host: state.Holder})
		e.failover.TakeOver(state, *a.Lead)
	}
}

func (s *server) client() Client { return Client{Key: s.cfg.Key, Version: s.cfg.Version} }

// askHost sends a host's daemon a question. The answer is nil if there is none.
func (s *server) askHost(ctx context.Context, name string, m wire.Message) (wire.Message, error) {
	s.mu.Lock()
	i := slices.IndexFunc(s.queue.hosts, func(h wire.MemberState) bool { return h.Host == name })
	addr := ""
	if i >= 0 {
		addr = s.queue.hosts[i].Addr
	}
	s.mu.Unlock()
	if addr == "" {
		return nil, nil // it is not seen
	}
	return s.client().ask(ctx, addr, m)
}

// Keep sends an elector what a successor of the launcher would need.
func (c Client) Keep(ctx context.Context, addr string, k *wire.Keep) (*wire.Kept, error) {
	ctx, cancel := context.WithTimeout(ctx, authority.Patient(ballot, len(k.Value)))
	defer cancel()
	return expect[*wire.Kept](c.ask(ctx, addr, k))
}

// Invite is Keep for a host that is no elector yet, one of many that may be gone.
func (c Client) Invite(ctx context.Context, addr string, k *wire.Keep) (*wire.Kept, error) {
	c.knownHostTimeout = timing.ConnectTimeout
	return c.Keep(ctx, addr, k)
}
