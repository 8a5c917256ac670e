package worker

import (
	"gorun/rendezvous/wire"
	"gorun/worker/signs"
)

// mostUsed is how many links a host reports of: a ring has one or two that carry much, so that the others are small.
const mostUsed = 3

// sendUsage answers the launcher.
func (d *daemon) sendUsage(brief bool) {
	u := &wire.Usage{Brief: true, Each: d.net.Each(mostUsed), Stolen: signs.Stolen()}
	if !brief {
		u = d.usage()
	}
	d.ranks.Monitor.Usage(u)
}

// usage returns what the launcher asks for each second, without what the ranks use.
func (d *daemon) usage() *wire.Usage {
	u := &wire.Usage{Links: d.net.Totals(), Each: d.net.Each(mostUsed), Results: d.engine.results.Resident()}
	counts, open := d.engine.Counts()
	u.Open = open
	for _, c := range counts {
		u.Ops = append(u.Ops, wire.OperationUsage{Kind: c.Kind.String(), Ended: c.Ended, Failed: c.Failed, Bytes: c.Bytes,
			Waiting: c.Waiting.Microseconds(), Running: c.Running.Microseconds()})
	}
	return u
}
