package launcher

import (
	"errors"
	"fmt"
	"slices"
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

// Timing returns the limits that decide whether a host is there.
func (s *Spec) Timing() liveness.Timing { return liveness.Default().Scaled(s.TimeScale) }

func (j *job) timing() liveness.Timing { return j.spec.Timing() }

// lease returns how long the hosts of a world may be silent.
func (j *job) lease() time.Duration {
	if j.spec.Lease > 0 {
		return j.spec.Lease
	}
	for _, h := range j.hosts {
		if h.ready == nil {
			continue
		}
		for _, g := range h.ready.Host.GPUs {
			if g.Mode == "vgpu" {
				return j.timing().MoveLease
			}
		}
	}
	return j.timing().Lease
}

// leaseOf returns how long a host may be silent: longer while it moves.
func (j *job) leaseOf(now time.Time, h *host) time.Duration {
	return j.alive.Lease(now, h.id, j.limits())
}

// limits returns the part of the view that decides how long a host may be silent.
func (j *job) limits() liveness.View { return liveness.View{Lease: j.lease(), Fixed: j.spec.Lease > 0} }

// view returns what the launcher sees of its hosts.
func (j *job) view(now time.Time) liveness.View {
	v := liveness.View{Lease: j.lease(), Fixed: j.spec.Lease > 0, Stopping: j.stopping, Epoch: j.membership.epoch, Met: j.met, Joiner: j.joiners()}
	members := map[int]bool{}
	for _, id := range j.membership.hosts {
		members[id] = true
	}
	for _, h := range j.hosts {
		c := j.contact(now, h)
		c.Member = h.evicted == nil && (j.membership.hosts == nil || members[h.id])
		v.Contacts = append(v.Contacts, c)
	}
	return v
}

// contact returns what the launcher sees of a host. view adds whether it is a member of the world.
func (j *job) contact(now time.Time, h *host) liveness.Contact {
	c := liveness.Contact{ID: h.id, Heard: h.Heard.Last(now), Up: h.up, Ready: h.ready != nil, Adopted: h.adopted, Leaving: h.leaving, Ended: h.ended}
	if line, renewed := h.Line(); renewed {
		c.Line = line
		c.Line.Kept = true
	}
	return c
}

// met reports whether the last worlds of two hosts were the same one, as at least one of them has reported.
func (j *job) met(a, b int) bool {
	of, other := j.hosts[a].world, j.hosts[b].world
	return of.Epoch > 0 && of.Epoch == other.Epoch || slices.Contains(of.Order, b) || slices.Contains(other.Order, a)
}

// joiners returns which hosts have not been in a world yet, so that they hold nothing of the ranks' state.
func (j *job) joiners() func(id int) bool {
	var known map[int]bool
	return func(id int) bool {
		if known == nil {
			known = map[int]bool{}
			for _, h := range j.hosts { // only one host reports who is in it
				for _, member := range h.world.Order {
					known[member] = true
				}
			}
		}
		return !known[id] && j.hosts[id].world.Epoch == 0
	}
}

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
	j.act(append(j.alive.Report(now, h.id, *e, v), j.alive.Decide(now, v)...))
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
			j.spec.Note("gorun: this machine hears none of its %s since %s: look at its own network; the job goes on there until %s",
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

func (j *job) tellSilence(v liveness.Verdict) {
	h := j.hosts[v.Host]
	event, text := HostEvent{Host: h.name, State: HostSilent, Since: v.Since}, "has been silent for"
	if v.Kind == liveness.Back {
		event.State, text = HostBack, "is back after"
	}
	j.watchHost(event)
	if v.Kind == liveness.Silent && !j.alive.IsolatedSince().IsZero() {
		return // one line is enough
	}
	text = fmt.Sprintf("%s %.0f s", text, v.For.Seconds())
	if v.Moves {
		text += ", while it moves"
	}
	j.spec.Note("gorun: %s %s", h.name, text)
}

func (j *job) tellPath(v liveness.Verdict) {
	by, of := j.hosts[v.Peer].name, j.hosts[v.Host].name
	event := HostEvent{Host: of, To: by, State: HostSilent, Since: v.Since}
	switch {
	case v.Kind == liveness.BrokenPath:
		j.spec.Note("gorun: %s has been silent to %s for %.0f s, although both are heard here: look at the network between them", of, by, v.For.Seconds())
	case j.stopping:
		return
	default:
		event.State = HostBack
		j.spec.Note("gorun: %s hears %s again after %.0f s", by, of, v.For.Seconds())
	}
	j.watchHost(event)
}

func (j *job) watchHost(e HostEvent) {
	if j.spec.WatchHosts != nil {
		j.spec.WatchHosts(e)
	}
}

// whyEvicted explains to users why a host is lost.
func (j *job) whyEvicted(e liveness.Evict) string {
	switch e.Cause {
	case liveness.Reported:
		return fmt.Sprintf("silent for %v, as %s reports", e.Lease, j.hosts[e.By].name)
	case liveness.Unreached:
		return fmt.Sprintf("%s has not reached it for %v: check firewalls between hosts", j.hosts[e.By].name, e.Lease)
	case liveness.NotHeard:
		return fmt.Sprintf("silent for %v", e.Lease)
	case liveness.BrokenLink:
		return e.Text
	case liveness.NoContact:
		return fmt.Sprintf("cannot be reached since %s", e.Since.Format(time.TimeOnly))
	}
	var from []string
	for _, id := range e.From {
		from = append(from, j.hosts[id].name)
	}
	return fmt.Sprintf("cut off from %s: %s", topology.Count(len(from), "host"), strings.Join(from, ", "))
}

// eviction is how a host was given up.
type eviction struct {
	why     string
	own     bool // it follows from what its own daemon sent
	alive   bool // the launcher heard it until then
	mayLive bool // the job ended, and its ranks may run on
}

// whyLost returns why a host was evicted; if it was not, the reason that its conversation shows.
func (h *host) whyLost(otherwise string) string {
	if h.evicted != nil {
		return h.evicted.why
	}
	return otherwise
}

// evict gives up a host. loseEvicted loses it once all hosts that are evicted together are known. If its own daemon
// asks for the end, the policy decides when.
func (j *job) evict(h *host, e *failure.HostError, how eviction) {
	switch {
	case h.ended || how.own && j.stopping:
		return
	case h.evicted != nil && !how.own: // it asked for its end, and now it does not even answer
		h.evicted.mayLive = how.mayLive
		j.evicted = append(j.evicted, h)
		return
	case h.evicted != nil:
		return
	}
	how.why = e.Err.Error()
	h.evicted, h.failure = &how, e
	if h.ready != nil || how.own {
		j.decide(elastic.HostEvicted{Host: h.id, Own: how.own, Reason: how.why})
	}
	if !how.own {
		j.evicted = append(j.evicted, h)
	}
}

// loseEvicted reports to the policy that the hosts which were evicted are lost, and hangs up on them. Nothing that
// their conversations bring after that counts.
func (j *job) loseEvicted() {
	for len(j.evicted) > 0 {
		h := j.evicted[0]
		if j.evicted = j.evicted[1:]; !h.ended {
			h.hangUp()
			j.lose(h, h.failure)
		}
	}
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
	if !j.spec.Verbose {
		return
	}
	if m.State == wire.MoveStarts {
		j.spec.Note("gorun: %s is about to be moved: %s", h.name, m.Text)
		return
	}
	j.spec.Note("gorun: %s renews its connections: %s", h.name, m.Text)
}
