package launcher

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// Package liveness decides which hosts are there. This file shows it what the launcher sees, and carries out its
// verdicts.

// listen looks for hosts that are silent, lost or back.
func (j *job) listen(now time.Time) {
	j.act(j.alive.Look(now, j.view(now)))
	j.loseEvicted()
}

// evidence takes all the evidence of a host against a peer.
func (j *job) evidence(h *host, e *wire.Evidence) {
	if e.Peer < 0 || e.Peer >= len(j.hosts) {
		return
	}
	now := time.Now()
	v := j.view(now)
	if late, other, news := j.alive.Awaited(h.id, *e, v); news {
		j.spec.Note("gorun: epoch %d has waited for %s for %.0f s: it and %s do not reach each other",
			e.Epoch, j.hosts[late].name, float64(e.AwaitedMS)/1000, j.hosts[other].name)
	}
	j.act(append(j.alive.Report(now, h.id, *e), j.alive.Decide(now, v)...))
}

// act carries out verdicts. Other evictions follow from what a host itself reports, or from isolation.
func (j *job) act(verdicts []liveness.Verdict) {
	for _, v := range verdicts {
		switch v.Kind {
		case liveness.Silent, liveness.Back:
			j.tellSilence(v)
		case liveness.BrokenPath, liveness.MendedPath:
			j.tellPath(v)
		case liveness.Isolated:
			j.spec.Note("gorun: this machine has heard from none of its %s since %s: look at its own network; the job goes on there until %s",
				topology.Count(v.Count, "host"), v.Since.Format(time.TimeOnly), v.Until.Format(time.TimeOnly))
		case liveness.Abandoned:
			j.endIsolated()
		case liveness.OutOfReach:
			if !j.stopping && j.membership.policy.Later() {
				j.decide(elastic.Wanted{}) // in a world, hosts report whether the launcher lives, and who hung up
			}
		case liveness.Evicted:
			h := j.hosts[v.Host]
			e := &failure.HostError{Host: h.name, Step: "run", Err: errors.New(j.whyEvicted(v.Evict)), Code: failure.ExitTransport}
			if !h.up && v.Evict.Cause != liveness.BrokenLink {
				e.Step = "start daemon"
			}
			j.evict(h, e, eviction{alive: v.Evict.Heard, mayLive: v.Evict.MayLive && j.stopping})
		}
	}
}

func (s *state) tellSilence(v liveness.Verdict) {
	h := s.hosts[v.Host]
	event, text := HostEvent{Host: h.name, State: HostSilent, Since: v.Since}, "has been silent for"
	if v.Kind == liveness.Back {
		event.State, text = HostBack, "is back after"
	}
	s.watchHost(event)
	if v.Kind == liveness.Silent && !s.alive.IsolatedSince().IsZero() {
		return // one line is enough
	}
	text = fmt.Sprintf("%s %.0f s", text, v.For.Seconds())
	if v.Moves {
		text += ", while it moves"
	}
	s.spec.Note("gorun: %s %s", h.name, text)
}

func (s *state) tellPath(v liveness.Verdict) {
	by, of := s.hosts[v.Peer].name, s.hosts[v.Host].name
	event := HostEvent{Host: of, To: by, State: HostSilent, Since: v.Since}
	switch {
	case v.Kind == liveness.BrokenPath:
		s.spec.Note("gorun: %s has been silent to %s for %.0f s, although both are heard here: look at the network between them", of, by, v.For.Seconds())
	case s.stopping:
		return
	default:
		event.State = HostBack
		s.spec.Note("gorun: %s hears %s again after %.0f s", by, of, v.For.Seconds())
	}
	s.watchHost(event)
}

// whyEvicted explains to users why a host is lost.
func (s *state) whyEvicted(e liveness.Evict) string {
	switch e.Cause {
	case liveness.Reported:
		return fmt.Sprintf("silent for %v, as %s reports", e.Lease, s.hosts[e.By].name)
	case liveness.Unreached:
		return fmt.Sprintf("%s has not reached it for %v: check firewalls between hosts", s.hosts[e.By].name, e.Lease)
	case liveness.NotHeard:
		return fmt.Sprintf("silent for %v", e.Lease)
	case liveness.BrokenLink:
		return e.Text
	case liveness.NoContact:
		return fmt.Sprintf("could not be reached since %s", e.Since.Format(time.TimeOnly))
	}
	var from []string
	for _, id := range e.From {
		from = append(from, s.hosts[id].name)
	}
	return fmt.Sprintf("cut off from %s: %s", topology.Count(len(from), "host"), strings.Join(from, ", "))
}

// migrating takes a host's report about its own move.
func (j *job) migrating(h *host, m *wire.Migrating) {
	now := time.Now()
	if m.State == wire.MoveStarts {
		j.alive.Moves(h.id, now.Add(j.timing().MoveLimit))
	} else {
		j.alive.Moved(now, h.id)
	}
	if !j.stopping {
		j.replicate(nil) // another launcher must not evict it sooner
	}
	if j.spec.HostMoves != nil {
		j.spec.HostMoves(h.name, m.State == wire.MoveStarts, m.Text)
	}
	if !j.spec.Verbose {
		return
	}
	if m.State == wire.MoveStarts {
		j.spec.Note("gorun: %s is about to be moved: %s", h.name, m.Text)
		return
	}
	j.spec.Note("gorun: %s renews its connections: %s", h.name, m.Text)
}
