package worker

import (
	"maps"
	"slices"
	"time"

	"gorun/rendezvous/wire"
)

// account tells a launcher that has taken over how it stands here, in the words in which the former one was told. Some
// of it the new one knows, and some it may hear twice: all of these are facts and not events.
func (d *daemon) account() {
	d.out.Write(d.ready)
	for _, process := range slices.Sorted(maps.Keys(d.pids)) {
		d.out.Write(&wire.Started{Process: process, PID: d.pids[process]})
	}
	for _, process := range slices.Sorted(maps.Keys(d.exits)) {
		d.out.Write(d.exits[process])
	}
	if d.kept > 0 {
		d.out.Write(&wire.StateKept{Epoch: d.kept})
	}
	known := &wire.Account{HasJob: true}
	if d.roster != nil {
		known.Epoch = d.roster.Epoch
		if d.began > 0 { // perhaps in a former world, and no newcomer for that
			d.out.Write(&wire.Committed{World: d.entered})
		}
		for _, process := range slices.Sorted(maps.Keys(d.waiting)) {
			if d.running[process] {
				d.out.Write(d.waiting[process])
			}
		}
		d.sendEvidence(d.alive.All(time.Now()))
	}
	d.out.Write(known)
}
