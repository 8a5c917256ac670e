package standing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"gorun/rendezvous/authority"
	"gorun/rendezvous/wire"
)

// Detached jobs that outlive the host of their launcher: this host keeps what another launcher would need, and votes
// for the host that begins it. Package authority decides; a lock is enough to own its machines, since none of them has
// much to do.

const (
	// watchEvery is how often electors look at the time.
	watchEvery = 250 * time.Millisecond
	// ballot is how long an elector may take to answer.
	ballot = 3 * time.Second
)

// Heirs is what a host does for the jobs of launchers that may be lost.
type Heirs interface {
	// Load returns what was saved, and Save saves it so that no crash takes it away.
	Load() ([]authority.State, error)
	Save(authority.State) error
	// Lives is true if a launcher of the job runs on this host.
	Lives(authority.State) bool
	// Begin begins a launcher that carries the job on, and does not wait for it.
	Begin(authority.State, authority.Legacy)
	// Desert keeps that the job has ended since too few electors are left, so many, to carry it on.
	Desert(s authority.State, left int) error
	// Return takes that back, if it was kept.
	Return(authority.State) error
}

// heirs are the electors of this host.
type heirs struct {
	mu   sync.Mutex
	jobs map[string]*heir
}

type heir struct {
	*authority.Elector
	asking map[string]bool // electors that have not answered yet
}

// now is the time of the electors.
func (s *server) now() time.Duration { return time.Duration(time.Now().UnixNano() - s.born) }

// remember begins with what was saved.
func (s *server) remember() error {
	s.heirs.mu.Lock()
	defer s.heirs.mu.Unlock()
	s.heirs.jobs = map[string]*heir{}
	if s.cfg.Heirs == nil {
		return nil
	}
	saved, err := s.cfg.Heirs.Load()
	for _, state := range saved {
		s.heirs.jobs[state.Job] = s.newHeir(state)
	}
	return err
}

func (s *server) newHeir(state authority.State) *heir {
	return &heir{authority.NewElector(s.cfg.Name, state, s.now()), map[string]bool{}}
}

// bequests are those of jobs about which this host decides, and which have not ended.
func (s *server) bequests() (out []Bequest) {
	s.heirs.mu.Lock()
	defer s.heirs.mu.Unlock()
	for _, h := range s.heirs.jobs {
		if state := h.State(); !state.Over && state.Value != nil && slices.Contains(state.Electors, s.cfg.Name) {
			out = append(out, Bequest{state, time.Unix(0, s.born+int64(min(h.Heard(), s.now())))})
		}
	}
	return out
}

// elect answers a launcher or a candidate.
func (s *server) elect(conn net.Conn, job string, ev authority.Event) {
	if s.cfg.Heirs == nil || job == "" {
		s.refuse(conn, "", "%s keeps nothing for jobs", s.cfg.Name)
		return
	}
	s.heirs.mu.Lock()
	h := s.heirs.jobs[job]
	if h == nil {
		h = s.newHeir(authority.State{})
	}
	a, err := s.step(h, ev)
	if err == nil && h.State().Job == job {
		s.heirs.jobs[job] = h
	}
	s.heirs.mu.Unlock()
	if err != nil {
		s.refuse(conn, "", "%v", err)
		return
	}
	if a.Answer != nil {
		s.answer(conn, a.Answer)
	}
}

// step has an elector take an event. It is called with the lock of the heirs held.
func (s *server) step(h *heir, ev authority.Event) (authority.Actions, error) {
	a, err := h.Take(s.now(), ev, s.cfg.Heirs.Save)
	if err != nil {
		s.cfg.Log.Warn("keep job", "err", err)
		return a, err
	}
	if a.Returned {
		if err := s.cfg.Heirs.Return(h.State()); err != nil {
			s.cfg.Log.Warn("take back that a job was deserted", "job", h.State().Job, "err", err)
		}
	}
	return a, nil
}

// standBy lets time pass, until ctx ends.
func (s *server) standBy(ctx context.Context) {
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
		if s.cfg.Heirs == nil {
			continue
		}
		s.heirs.mu.Lock()
		for _, h := range s.heirs.jobs {
			state := h.State()
			if state.Over {
				continue
			}
			bereft := state.Holder == s.cfg.Name && !s.cfg.Heirs.Lives(state)
			s.act(ctx, &asking, h, authority.Event{Tick: &authority.Tick{Bereft: bereft}})
		}
		s.heirs.mu.Unlock()
	}
}

// act has an elector take an event, and does what it says. It is called with the lock held.
func (s *server) act(ctx context.Context, asking *sync.WaitGroup, h *heir, ev authority.Event) {
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
			s.heirs.mu.Lock()
			defer s.heirs.mu.Unlock()
			delete(h.asking, name)
			if v, ok := answer.(*wire.Voted); ok {
				s.act(ctx, asking, h, authority.Event{Voted: &authority.Voted{From: name, Voted: *v}})
			}
		})
	}
	if a.Deserted > 0 {
		if err := s.cfg.Heirs.Desert(h.State(), a.Deserted); err != nil {
			s.cfg.Log.Warn("keep that a job was deserted", "job", h.State().Job, "err", err)
		}
	}
	if a.Lead != nil {
		state := h.State()
		s.cfg.Log.Info("carries a job on", "job", state.Job, "term", a.Lead.Term, "former", state.Holder)
		s.cfg.Heirs.Begin(state, *a.Lead)
	}
}

func (s *server) client() Client { return Client{Key: s.cfg.Key, Version: s.cfg.Version} }

// addressOf is where the daemon of a host is, "" if it is not seen.
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

// Keep gives an elector what another launcher would need.
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
