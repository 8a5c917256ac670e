package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorun/launcher/elastic"
	"gorun/rendezvous/wire"
)

func (j *job) handle(ev event) {
	h := j.hosts[ev.host]
	if !j.stopping && j.abandoned(time.Now(), h, ev) {
		j.endAlone() // of which this is the consequence
	}
	h.unheard = ev.err != nil && j.stopping && j.vanished(h)
	switch {
	case ev.err != nil:
		j.hungUpOn(h, ev.err)
	case ev.up:
		j.up[ev.host] = true
		h.session = ev.session
		if j.topology != nil {
			h.queue.put(j.topology) // its Job may be from before
		}
		if j.stopping || h.adopted && h.leaving {
			h.queue.put(&wire.Stop{})
		}
	default:
		j.message(h, ev.msg)
	}
}

func (j *job) message(h *host, msg wire.Message) {
	switch msg := msg.(type) {
	case *wire.Ready:
		j.ready[h.id] = msg
		j.decide(elastic.HostUp{Host: h.id})
	case *wire.Committed:
		strange := func(id int) bool { return id < 0 || id >= len(j.hosts) }
		if slices.ContainsFunc(msg.World.Order, strange) || slices.ContainsFunc(msg.World.Rings, func(r wire.RailRing) bool { return slices.ContainsFunc(r.Order, strange) }) {
			j.evict(h, &HostError{Host: h.name, Step: "join", Err: fmt.Errorf("the daemon reports a world of unknown hosts %v", msg.World.Order)}, true)
			return
		}
		j.worlds[h.id] = msg.World
		if j.shown < msg.World.Epoch && len(msg.World.Order) > 0 {
			j.shown = msg.World.Epoch
			j.showRing(msg.World)
		}
		j.decide(elastic.Committed{Host: h.id, Epoch: msg.World.Epoch})
	case *wire.StateKept:
		j.decide(elastic.Kept{Host: h.id, Epoch: msg.Epoch})
	case *wire.Account:
		j.accounted(h, msg)
	case *wire.Reordered:
		j.reordered(h, msg)
	case *wire.Rejoining:
		if j.owns(h, msg.Process) {
			j.decide(elastic.Rejoining{Process: msg.Process, Epoch: msg.Epoch, Why: strings.Join(strings.Fields(msg.Why), " ")})
		}
	case *wire.Wanted:
		j.decide(elastic.Wanted{})
	case *wire.Started:
		if j.owns(h, msg.Process) {
			first := !j.started[msg.Process]
			j.started[msg.Process] = true
			if first {
				j.feed(msg.Process)
			}
			j.watch(RankEvent{Rank: msg.Process, Host: h.name, PID: msg.PID})
			j.decide(elastic.Started{Process: msg.Process})
		}
	case *wire.Exited:
		if j.owns(h, msg.Process) {
			j.rankExited(h, msg)
		}
	case *wire.Failed:
		j.daemonFailed(h, msg)
	case *wire.Evidence:
		j.evidence(h, msg)
	case *wire.Fence:
		j.fence.arrive(j, h, msg)
	case *wire.Alone:
		j.singleton(h, msg)
	case *wire.Name:
		if j.owns(h, msg.Rank) {
			h.queue.put(j.names.answer(msg))
		}
	case *wire.Stuck:
		if j.owns(h, msg.Ended) && len(msg.Waiting) > 0 {
			j.stuck(h, msg)
		}
	case *wire.Inspected:
		j.inspected[h.id] = msg
		if j.inspectC != nil {
			j.inspectedAll()
		}
	case *wire.Taken:
		select {
		case <-h.queue.room:
		default: // it acknowledges what was never sent: nothing to make room for
		}
	case *wire.Usage:
		j.used(h, msg)
	case *wire.Stalled:
		j.stalled(h, msg)
	case *wire.Migrating:
		j.migrating(h, msg)
	case *wire.Moved:
		j.relocated(h, msg)
	case *wire.Edges:
		j.edges[h.id] = msg.Edges
	case *wire.Log:
		j.spec.Note("gorun: %s: %s", h.name, msg.Text)
	case *wire.Done:
		j.ended[h.id] = true
		j.carried.add(msg.Links)
		if h.failure == nil {
			h.failure = &HostError{Host: h.name, Step: "run", Err: errors.New("the daemon ended before its ranks"), Code: ExitTransport}
		}
		j.decide(elastic.HostLost{Host: h.id, Reason: cmp.Or(h.lostWhy, "it has ended"), Ended: true})
	}
}

// hungUpOn takes the end of a conversation whose host has not said Done.
func (j *job) hungUpOn(h *host, err *HostError) {
	j.ended[h.id] = true
	why := err.Error()
	switch gone := h.unreachable.Load(); {
	case h.lostWhy != "":
		why = h.lostWhy
	case gone != nil:
		why = *gone
	}
	if h.failure == nil {
		h.failure = err
	}
	j.decide(h.lostBy(why))
}

// evict gives up a host that fails, by its own word or that of others.
func (j *job) evict(h *host, e *HostError, own bool) {
	if j.stopping || j.ended[h.id] || h.lostWhy != "" {
		return
	}
	h.failure, h.lostWhy, h.heardLast, h.ownWord = e, e.Err.Error(), j.hears(h, time.Now()), own
	j.decide(elastic.HostEvicted{Host: h.id, Own: own, Reason: h.lostWhy})
}

// daemonFailed takes a daemon's word about itself or about a peer that it lost.
func (j *job) daemonFailed(h *host, f *wire.Failed) {
	if j.waitsForSilent(time.Now(), f) {
		return
	}
	lost := h
	if f.Peer >= 0 && f.Peer < len(j.hosts) {
		lost = j.hosts[f.Peer]
	}
	j.evict(lost, &HostError{Host: lost.name, Step: f.Step, Err: errors.New(f.Text), Hint: f.Hint, Code: f.Code}, lost == h)
}

func (j *job) rankExited(h *host, e *wire.Exited) {
	if j.exited[e.Process] { // a launcher that took over may hear of it once more
		return
	}
	j.spec.Output.Close(e.Process)
	j.watch(RankEvent{Rank: e.Process, Host: h.name, Ended: true, Code: e.Code, Signal: e.Signal})
	j.started[e.Process], j.exited[e.Process] = true, true
	switch {
	case e.Asked:
		h.failure = cmp.Or(h.failure, &HostError{Host: h.name, Step: "run", Err: errors.New("the daemon has stopped its ranks by itself"), Code: ExitTransport})
	case e.Code != 0:
		j.change.failures[e.Process] = failureOf(h, e)
	}
	j.decide(elastic.Exited{Process: e.Process, Code: e.Code, Asked: e.Asked})
	j.fence.check(j)
}

func (j *job) watch(e RankEvent) {
	if j.spec.Watch != nil {
		j.spec.Watch(e)
	}
}
