package worker

import (
	"cmp"
	"context"
	"slices"
	"time"

	"gorun/collective/link"
	"gorun/rendezvous/wire"
)

// mostLinks is how many links a host reports of: those in which most waits.
const mostLinks = 16

// inspect reports to the launcher what the ranks of this host do, and its links if it is to look for stacks.
func (d *daemon) inspect(ctx context.Context, how *wire.Inspect) {
	began, then := time.Now(), d.statuses()
	d.ranks.Monitor.Inspect(ctx, how, func(m *wire.Inspected) {
		if how.Stacks {
			m.Links = compareLinks(then, d.statuses(), time.Since(began))
			d.paths.describe(m.Links)
		}
		m.Now = time.Now().UnixMicro()
		d.out.Write(m)
	})
}

// statuses returns the states of the links to the other hosts of the world, by id.
func (d *daemon) statuses() map[int]link.Status {
	all := map[int]link.Status{}
	for _, p := range d.member.Others() {
		if s, ok := d.net.Links().Status(p.ID); ok {
			all[p.ID] = s
		}
	}
	return all
}

// compareLinks describes what links did between two looks.
func compareLinks(then, now map[int]link.Status, window time.Duration) (all []wire.LinkState) {
	grown := func(from, to uint64) int64 { return int64(to - min(from, to)) } // less if a stream was replaced
	for peer, s := range now {
		before := then[peer]
		all = append(all, wire.LinkState{Peer: peer, Window: window.Microseconds(), Sent: grown(before.AckedBytes, s.AckedBytes),
			Waits: int64(s.Unacked + s.Queued), RTT: s.RTT.Microseconds(),
			Down: s.Streams == 0 && s.Attached > 0})
	}
	slices.SortFunc(all, func(a, b wire.LinkState) int {
		return cmp.Or(cmp.Compare(b.Waits, a.Waits), cmp.Compare(a.Peer, b.Peer))
	})
	return all[:min(len(all), mostLinks)]
}
