package launcher

import (
	"time"

	"gorun/launcher/stall"
	"gorun/launcher/why"
	"gorun/rendezvous/wire"
)

// inspection is a round in which the daemons report what their ranks do.
type inspection struct {
	over  <-chan time.Time // when the job no longer waits for them; nil while there is no round
	found map[int]*wire.Inspected
	then  func() // takes what was found
}

// finding returns what was found about a rank of a host.
func (i *inspection) finding(rank int, p process, h *host, all stall.Answers) why.Finding {
	f := why.Finding{Rank: rank, Host: h.name}
	found := i.found[h.id]
	switch {
	case p.exited:
		f.State, f.Ended = "has ended", true
		return f
	case !h.up:
		f.State, f.Silent = "its host was not reached", true
		return f
	case !p.started:
		f.State = "has not started"
		return f
	case found == nil:
		f.State, f.Silent = "its host does not answer", true
		return f
	}
	f.State, f.Does = "runs", all.Of(rank, h.id)
	f.Behind, f.Waits = all.Behind(rank, h.id), all.Waits(rank, h.id)
	for _, s := range found.Ranks {
		if s.Process != rank {
			continue
		}
		f.State, f.PID, f.Stack = s.State, s.PID, s.Stack
		if s.Split != nil {
			f.Activity, f.For = s.Split.Activity, s.Split.For
		}
	}
	return f
}
