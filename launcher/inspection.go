package launcher

import (
	"strings"
	"time"

	"gorun/launcher/stall"
	"gorun/rendezvous/wire"
)

// inspection is what the daemons of a job that takes too long report.
type inspection struct {
	over  <-chan time.Time // when the job no longer waits for them; nil while it does not
	found map[int]*wire.Inspected
}

// state describes what a rank of a host does.
func (i *inspection) state(rank int, p process, h *host, all stall.Answers) string {
	found := i.found[h.id]
	switch {
	case p.exited:
		return "has ended"
	case !h.up:
		return "its host was not reached"
	case !p.started:
		return "has not started"
	case found == nil:
		return "its host does not answer"
	}
	does := "runs"
	for _, s := range found.Ranks {
		if s.Process == rank {
			does = s.State
		}
	}
	return strings.Join(append([]string{does}, all.Of(rank, h.id)...), "; ")
}
