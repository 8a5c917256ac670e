package launcher

import "gorun/rendezvous/wire"

// moved notifies all daemons that a host is about to be moved, or has been.
func (j *job) moved(m Move) {
	state := wire.MoveEnds
	if m.Starts {
		state = wire.MoveStarts
	}
	for _, h := range j.hosts {
		if bare(h.name) != bare(m.Host) || !h.up || h.ended || h.leaving {
			continue // of other jobs, mostly
		}
		msg := &wire.Migrating{Host: h.id, State: state, Text: m.Text, Labels: m.Labels, By: m.By}
		if m.Starts {
			j.migrating(h, msg) // the host itself reports the end
		}
		j.hosts.broadcast(msg)
	}
}
