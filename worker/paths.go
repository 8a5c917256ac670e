package worker

import (
	"maps"
	"time"

	"gorun/collective/flight"
	"gorun/collective/link"
	"gorun/rendezvous/wire"
)

// paths keeps what the links to the other hosts did in the last half minute.
type paths struct {
	began time.Time
	of    map[int]*flight.Path // by id of the other host
}

func newPaths() paths { return paths{time.Now(), map[int]*flight.Path{}} }

// look takes the counters of all links, once a second.
func (p *paths) look(now map[int]link.Status) {
	maps.DeleteFunc(p.of, func(peer int, _ *flight.Path) bool { _, ok := now[peer]; return !ok })
	for peer, s := range now {
		if p.of[peer] == nil {
			p.of[peer] = &flight.Path{}
		}
		p.of[peer].Look(time.Since(p.began).Milliseconds(), s.AckedBytes, s.SentAgain)
	}
}

// describe adds to the links what they lost.
func (p *paths) describe(all []wire.LinkState) {
	for i := range all {
		if path := p.of[all[i].Peer]; path != nil {
			l := path.Loss()
			all[i].Lost, all[i].LostMS, all[i].LostOf, all[i].Losing = int64(l.Packets), l.Time, int64(l.Bytes), l.Lasting()
		}
	}
}
