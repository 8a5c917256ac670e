package worker

import (
	"time"

	"gorun/rendezvous/wire"
)

// account reports the state of this host to a launcher that has taken over, as it was reported to the former one. Some
// of it the new one knows, and some it may hear twice: all of these are facts and not events.
func (d *daemon) account() {
	d.out.Write(d.ready)
	d.ranks.Monitor.Account()
	known := &wire.Account{HasJob: true}
	if r := d.member.Roster(); r != nil {
		known.Epoch = r.Epoch
		if d.member.World().Epoch > 0 { // perhaps in a former world, and not a joiner for that
			d.out.Write(&wire.Committed{World: d.member.Current()})
		}
		d.ranks.Monitor.AccountWaiting()
		d.sendEvidence(d.peers.All(time.Now()))
	}
	d.out.Write(known)
}
