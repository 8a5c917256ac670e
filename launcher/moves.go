package launcher

import "gorun/rendezvous/wire"

// Move is what somebody beside the hosts knows of a move of one, such as vCenter.
type Move struct {
	Host   string // its name
	Starts bool   // or it ends
	Text   string
}

// moved tells all daemons that a host is about to be moved, or has been.
func (j *job) moved(m Move) {
	state := wire.MoveEnds
	if m.Starts {
		state = wire.MoveStarts
	}
	for _, h := range j.hosts {
		if bare(h.name) != bare(m.Host) || !j.up[h.id] || j.ended[h.id] || h.leaving {
			continue // of other jobs, mostly
		}
		msg := &wire.Migrating{Host: h.id, State: state, Text: m.Text}
		if m.Starts {
			j.migrating(h, msg) // the host itself tells the end
		}
		j.broadcast(msg)
	}
}
