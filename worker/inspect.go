package worker

import (
	"slices"

	"gorun/rendezvous/wire"
	"gorun/worker/proc"
)

// inspect tells the launcher what the processes of this host's ranks do.
func (d *daemon) inspect() {
	msg := &wire.Inspected{}
	for process := range d.running {
		msg.Ranks = append(msg.Ranks, wire.RankState{Process: process, State: proc.Describe(d.pids[process])})
	}
	slices.SortFunc(msg.Ranks, func(a, b wire.RankState) int { return a.Process - b.Process })
	d.out.Write(msg)
}
