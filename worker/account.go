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
	if d.member.roster != nil {
		known.Epoch = d.member.roster.Epoch
		if d.member.epoch > 0 { // perhaps in a former world, and no newcomer for that
			d.out.Write(&wire.Committed{World: d.member.current})
		}
		d.ranks.AccountWaiting()
		d.sendEvidence(d.member.alive.All(time.Now()))
	}
	d.out.Write(known)
}
