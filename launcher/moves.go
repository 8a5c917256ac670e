package launcher

import (
	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

// moved notifies all daemons that a host is about to be moved, or has been. A host that is to be left is drained, until it returns.
func (j *job) moved(m Move) {
	if m.What == "leaves" || m.What == "returns" {
		if _, err := j.membership.named(m.Host); err == nil { // of an elastic job: another one waits for a host that moves
			j.drain(Drain{Host: m.Host, Undo: m.What == "returns", move: true, Answer: make(chan jobs.Departure, 1)})
		}
		return
	}
	state, starts := wire.MoveEnds, m.What == "starts"
	if starts {
		state = wire.MoveStarts
	}
	for _, h := range j.hosts {
		if bare(h.name) != bare(m.Host) || !h.up || h.ended || h.leaving {
			continue // of other jobs, mostly
		}
		msg := &wire.Migrating{Host: h.id, State: state, Text: m.Text, Labels: m.Labels, By: m.By}
		if starts {
			j.migrating(h, msg) // the host itself reports the end
		}
		j.hosts.broadcast(msg)
	}
}
