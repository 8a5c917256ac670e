package launcher

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/launcher/talk"
	"gorun/rendezvous/wire"
)

// handle takes what the conversation with a host reports.
func (j *job) handle(ev talk.Event) {
	defer ev.Handled()
	h := j.hosts[ev.Host]
	if ev.From != nil && ev.From != &h.Conversation || h.evicted != nil && h.ended {
		return // it was evicted, and another host may have its id
	}
	defer j.loseEvicted()
	if !j.stopping && j.abandoned(time.Now(), h, ev) {
		j.endIsolated() // the event is a consequence
	}
	switch {
	case ev.Err != nil:
		j.lose(h, ev.Err)
	case ev.Up:
		h.up = true
		h.session = ev.Session
		if j.stopping || h.adopted && h.leaving {
			h.Queue.Put(&wire.Stop{})
		}
	default:
		j.message(h, ev.Msg)
	}
}

// onePython reports whether all ranks run one program, and look for it where their daemons do.
func (j *job) onePython() bool {
	ownPath := slices.ContainsFunc(j.spec.ProgramOf(0).Env, func(kv string) bool { return strings.HasPrefix(kv, "PATH=") })
	return len(j.spec.Programs) < 2 && !ownPath
}

// message takes a message that may change who is in the job.
func (j *job) message(h *host, msg wire.Message) {
	switch msg := msg.(type) {
	case *wire.Ready:
		h.ready = msg
		unfit := j.hosts.sameMachine(h)
		if unfit == nil && j.onePython() {
			unfit = j.hosts.otherPython(h)
		}
		switch {
		case unfit == nil:
		case j.spec.IfAlone == wire.AloneWarns:
			j.spec.Note("gorun: warning: %v", unfit)
		default:
			h.ready = nil // to the policy it was never up, and its id may be used again
			j.evict(h, unfit, eviction{own: true})
			return
		}
		j.decide(elastic.HostUp{Host: h.id})
	case *wire.Account:
		j.accounted(h, msg)
	case *wire.Committed:
		j.entered(h, msg.World)
	case *wire.StateKept:
		j.decide(elastic.Kept{Host: h.id, Epoch: msg.Epoch})
	case *wire.Wanted:
		j.decide(elastic.Wanted{})
	case *wire.Rejoining:
		if j.processes.on(h.id, msg.Process) {
			j.decide(elastic.Rejoining{Process: msg.Process, Epoch: msg.Epoch, Why: strings.Join(strings.Fields(msg.Why), " ")})
		}
	case *wire.Started:
		if j.processes.on(h.id, msg.Process) {
			j.rankStarted(h, msg)
		}
	case *wire.Exited:
		// A launcher that took over may hear of it once more.
		if j.processes.on(h.id, msg.Process) && !j.processes.at(msg.Process).exited {
			j.rankExited(h, msg)
		}
	case *wire.Evidence:
		j.evidence(h, msg)
	case *wire.Failed:
		j.daemonFailed(h, msg)
	case *wire.Done:
		h.ended = true
		j.network.carried.add(msg.Links)
		h.fails(errors.New("the daemon ended before its ranks"))
		j.decide(elastic.HostLost{Host: h.id, Reason: h.whyLost("it has ended"), Ended: true})
	default:
		j.notice(h, msg)
	}
}

// notice takes a message that changes nothing about who is in the job.
func (j *job) notice(h *host, msg wire.Message) {
	switch msg := msg.(type) {
	case *wire.Reordered:
		j.reordered(h, msg)
	case *wire.Moved:
		j.relocated(h, msg)
	case *wire.Migrating:
		j.migrating(h, msg)
	case *wire.Edges:
		j.network.edges[h.id] = msg.Edges
	case *wire.Fence:
		j.fenceArrived(h, msg)
	case *wire.Stuck:
		if j.processes.on(h.id, msg.Ended) && len(msg.Waiting) > 0 {
			j.stop(stuckError(h.name, msg.Ended, msg.Waiting))
		}
	case *wire.Alone:
		if j.processes.on(h.id, msg.Process) {
			j.mpi.warn(j.spec, h.name, msg)
		}
	case *wire.Name:
		if j.processes.on(h.id, msg.Rank) {
			h.Queue.Put(j.mpi.names.Answer(msg))
		}
	case *wire.Stalled:
		j.stalled(h, msg)
	case *wire.Inspected:
		j.inspected(h, msg)
	case *wire.Flight:
		j.flown(h, msg)
	case *wire.Usage:
		if msg.Brief {
			j.lags.take(h, msg)
		} else {
			j.spec.reportUsage(h, msg, j.processes, j.hosts)
		}
	case *wire.Taken:
		h.Queue.MakeRoom()
	case *wire.Log:
		j.spec.Note("gorun: %s: %s", h.name, msg.Text)
	}
}

// accounted takes the end of a daemon's account. A member that does not know the last roster of the former launcher never got
// it, and needs another one.
func (j *job) accounted(h *host, a *wire.Account) {
	if m := j.membership; a.HasJob && a.Epoch < m.taken && m.epoch == m.taken && m.policy.Member(h.id) {
		why := fmt.Sprintf("the launcher was lost before %s knew the members of epoch %d", h.name, m.epoch)
		j.decide(elastic.Interrupted{Why: why})
	}
}

// entered notes the world that a host has entered.
func (j *job) entered(h *host, w wire.World) {
	unknown := func(id int) bool { return id < 0 || id >= len(j.hosts) }
	if slices.ContainsFunc(w.Order, unknown) {
		err := fmt.Errorf("the daemon reports a world of unknown hosts %v", w.Order)
		j.evict(h, &failure.HostError{Host: h.name, Step: "join", Err: err}, eviction{own: true})
		return
	}
	h.world = w
	if j.network.shown < w.Epoch && len(w.Order) > 0 {
		j.network.shown = w.Epoch
		j.showRing(w)
	}
	j.decide(elastic.Committed{Host: h.id, Epoch: w.Epoch})
}

// relocated passes the new address of a host on: a peer that has moved as well may not have heard it.
func (j *job) relocated(h *host, m *wire.Moved) {
	former := h.ready
	if former == nil || m.Host != h.id {
		return
	}
	ready := *former
	ready.Gossip, ready.Data = m.Gossip, m.Data
	h.ready = &ready
	for _, other := range j.hosts {
		if other != h && other.ready != nil && !other.ended {
			other.Queue.Put(m)
		}
	}
}

// rankStarted notes that a rank runs.
func (j *job) rankStarted(h *host, s *wire.Started) {
	p := &j.processes[s.Process]
	if !p.started {
		p.started = true
		j.spec.feedStdin(s.Process, j.processes, j.hosts)
	}
	j.spec.watch(RankEvent{Rank: s.Process, Host: h.name, PID: s.PID, Spare: p.spare})
	j.decide(elastic.Started{Process: s.Process})
}

// rankExited notes that a rank has ended, or could not start.
func (j *job) rankExited(h *host, e *wire.Exited) {
	j.spec.Output.Close(e.Process)
	j.spec.watch(RankEvent{Rank: e.Process, Host: h.name, Ended: true, Code: e.Code, Signal: e.Signal})
	p := &j.processes[e.Process]
	p.started, p.exited, p.split = true, true, e.Split
	switch {
	case e.Asked:
		h.fails(errors.New("the daemon has stopped its ranks by itself"))
	case e.Code != 0:
		p.failure = &failure.RankError{Rank: e.Process, Host: h.name, Code: e.Code, Signal: e.Signal, Reason: e.Error,
			Unfinished: e.Unfinished, Alone: e.Alone, Memory: e.Memory, File: e.File}
	}
	j.decide(elastic.Exited{Process: e.Process, Code: e.Code, Asked: e.Asked, Why: e.Error})
	j.checkFence()
}

// daemonFailed takes a daemon's report that it cannot continue, or that its link to a peer has failed.
func (j *job) daemonFailed(h *host, f *wire.Failed) {
	now := time.Now()
	switch {
	case j.stopping || j.waitsForSilent(now, f):
	case f.Peer >= 0 && f.Peer < len(j.hosts) && f.Peer != h.id:
		j.act(j.alive.LinkFailed(now, h.id, f.Peer, f.Text, j.view(now)))
	default:
		why := &failure.HostError{Host: h.name, Step: f.Step, Err: errors.New(f.Text), Hint: f.Hint, Code: f.Code}
		j.evict(h, why, eviction{own: true})
	}
}
