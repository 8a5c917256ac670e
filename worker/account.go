package worker

import (
	"time"

	"gorun/rendezvous/wire"
)

// account tells a launcher that has taken over how it stands here, in the words in which the former one was told. Some
// of it the new one knows, and some it may hear twice: all of these are facts and not events.
func (d *daemon) account() {
	d.out.Write(d.ready)
	d.ranks.Account()
	known := &wire.Account{HasJob: true}
	if d.roster != nil {
		known.Epoch = d.roster.Epoch
		if d.began > 0 { // perhaps in a former world, and no newcomer for that
			d.out.Write(&wire.Committed{World: d.entered})
		}
		d.ranks.AccountWaiting()
		d.sendEvidence(d.alive.All(time.Now()))
	}
	d.out.Write(known)
}
