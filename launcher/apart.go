package launcher

import (
	"maps"
	"slices"
	"time"

	"gorun/rendezvous/wire"
)

// Hosts that the launcher hears may not hear each other, if the way between them is broken. That is told as the silence of a
// host is; what comes of it is decided in accuse.go.

// apart is what two hosts say of the way between them: that one answers nothing.
type apart struct {
	by, of int // host ids
	since  time.Time
	told   bool
	said   map[int]bool // by whom it is said; what one direction carries again the other may not
}

// unanswered takes what a host says of the link to a peer. Both ends may say it, and then it is over when both of them say so.
func (j *job) unanswered(h *host, m *wire.Evidence) {
	if m.Peer == h.id {
		return
	}
	pair := [2]int{min(h.id, m.Peer), max(h.id, m.Peer)}
	known := j.apart[pair]
	switch {
	case m.UnansweredMS > 0 && known != nil:
		known.said[h.id] = true
	case m.UnansweredMS > 0:
		if j.apart == nil {
			j.apart = map[[2]int]*apart{}
		}
		j.apart[pair] = &apart{by: h.id, of: m.Peer, since: time.Now().Add(-time.Duration(m.UnansweredMS) * time.Millisecond), said: map[int]bool{h.id: true}}
	case known != nil:
		if delete(known.said, h.id); len(known.said) > 0 {
			return
		}
		delete(j.apart, pair)
		if known.told && !j.stopping {
			by, of := j.hosts[known.by].name, j.hosts[known.of].name
			j.spec.Note("gorun: %s hears %s again after %.0f s", by, of, time.Since(known.since).Seconds())
			j.watchHost(HostEvent{Host: of, To: by, State: HostBack, Since: known.since})
		}
	}
}

// settled is true for a host that the launcher hears, and has heard for a while: after a silence, of its own too, a host takes a moment to
// hear the others again, and of one that falls silent the launcher does not know it at once.
func (j *job) settled(h *host, now time.Time) bool {
	j.absent(now, h)
	return j.hears(h, now) && now.Sub(h.absent) >= reunion && now.Sub(j.silences.floor) >= reunion
}

// listenApart tells which hosts do not hear each other. Of one that the launcher does not hear either that is told anyway.
func (j *job) listenApart(now time.Time) {
	inOrder := func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }
	for _, pair := range slices.SortedFunc(maps.Keys(j.apart), inOrder) {
		a := j.apart[pair]
		by, of := j.hosts[a.by], j.hosts[a.of]
		switch {
		case !j.member(by) || !j.member(of):
			delete(j.apart, pair)
		case !a.told && j.settled(by, now) && j.settled(of, now):
			a.told = true
			j.spec.Note("gorun: %s has been silent to %s for %.0f s, although both are heard here: look at the network between them",
				of.name, by.name, now.Sub(a.since).Seconds())
			j.watchHost(HostEvent{Host: of.name, To: by.name, State: HostSilent, Since: a.since})
		}
	}
}
