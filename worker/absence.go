package worker

import (
	"maps"
	"slices"
	"time"

	"gorun/rendezvous/gossip"
	"gorun/rendezvous/wire"
)

// absences say when a peer of whom gossip hears nothing any more, or that does not answer over the link, is taken for lost. Gossip
// asks over other hosts too, so of a way that is broken between two of many only their link knows. A virtual machine that moves is
// silent for seconds or minutes and then goes on, so there may be reasons to wait for longer than the lease.
type absences struct {
	patience time.Duration     // with everybody, beyond that of gossip
	fixed    bool              // by the user: no host is excused
	until    map[int]time.Time // of those that are silent: when they are lost
	excused  map[int]time.Time // of those that announced that they move: until when that is believed
	doubt    time.Time         // until when this host does not trust itself, for it stood still
	given    map[int]bool      // those of until that were found lost, and were not heard since
	links    map[int]*waiting  // for those that have yet to answer over the link
}

// movePatience is how much longer than gossip one waits for a host that moves.
const movePatience = wire.MoveLease - gossip.Lease

// waiting is for what was sent over a link.
type waiting struct {
	since time.Time // when that was noticed: the peer has answered nothing after it
	from  time.Time // when its lease begins to count, which is later if a move has ended meanwhile
	told  bool
	soon  bool // the launcher knows that the lease ends soon
	lost  bool
}

// leastLink is how long a peer has, even if the lease is shorter, to do over links what takes more than a word of gossip: to reach
// this host while it is busy with its start, or to show that it is there when it reads nothing, which may take some seconds each
// time.
const leastLink = 6 * time.Second

func overLinks(lease time.Duration) time.Duration { return max(lease, leastLink) }

// warning is how long before its lease ends the launcher hears of a peer that does not answer: as long as it hears others out before it
// decides which of two is lost. leastWarned is how long a peer is silent then at least.
const (
	warning     = 5 * time.Second
	leastWarned = 2 * time.Second
)

func newAbsences() *absences {
	return &absences{until: map[int]time.Time{}, excused: map[int]time.Time{}, given: map[int]bool{}, links: map[int]*waiting{}}
}

// left says that gossip has given up a peer.
func (a *absences) left(peer int, now time.Time) {
	patience := a.patience
	if now.Before(a.excused[peer]) {
		patience = max(patience, movePatience)
	}
	at := now.Add(patience)
	if a.doubt.After(at) {
		at = a.doubt
	}
	a.until[peer] = at
}

// back says that the peer was heard again, and returns whether it had been found lost.
func (a *absences) back(peer int) (lost bool) {
	lost = a.given[peer]
	delete(a.until, peer)
	delete(a.given, peer)
	return lost && !a.missed(peer)
}

// missed is true for a peer that was found lost, and was not heard since.
func (a *absences) missed(peer int) bool {
	w := a.links[peer]
	return a.given[peer] || w != nil && w.lost
}

// allMissed returns those, ascending.
func (a *absences) allMissed() []int {
	peers := slices.Collect(maps.Keys(a.given))
	for peer := range a.links {
		if a.missed(peer) {
			peers = append(peers, peer)
		}
	}
	slices.Sort(peers)
	return slices.Compact(peers)
}

// quiet is a link of which users hear.
type quiet struct {
	peer  int
	since time.Time
	back  bool // it does so again
	lost  bool // it is no more taken for lost, or about to be
}

// linked takes which peers have yet to answer over their links, with when they last did, and returns what is new.
func (a *absences) linked(now time.Time, awaited map[int]time.Time) (news []quiet) {
	for peer, w := range a.links {
		answered, waits := awaited[peer]
		if waits && !answered.After(w.since) {
			continue
		}
		charged := w.soon || a.missed(peer)
		if delete(a.links, peer); w.told || w.soon || w.lost {
			news = append(news, quiet{peer: peer, since: w.since, back: true, lost: charged && !a.missed(peer)})
		}
	}
	for peer := range awaited {
		w := a.links[peer]
		switch {
		case w == nil:
			a.links[peer] = &waiting{since: now, from: now}
		case !w.told && now.Sub(w.since) >= wire.SilentAfter:
			w.told = true
			news = append(news, quiet{peer: peer, since: w.since})
		}
	}
	slices.SortFunc(news, func(a, b quiet) int { return a.peer - b.peer })
	return news
}

// excuse says that a peer will be silent, at some time until then; the zero time that it will be no more: then it has the
// lease, however long it was silent before.
func (a *absences) excuse(now time.Time, peer int, until time.Time) {
	if until.IsZero() || a.fixed {
		if w := a.links[peer]; w != nil && now.Before(a.excused[peer]) {
			w.from = now
		}
		delete(a.excused, peer)
		return
	}
	_, known := a.excused[peer]
	a.excused[peer] = until
	if at, silent := a.until[peer]; silent && !known {
		a.until[peer] = at.Add(max(movePatience-a.patience, 0))
	}
}

// mistrust says that this host stood still: until then, those of whom it hears nothing may well be there.
func (a *absences) mistrust(until time.Time) {
	a.doubt = until
	maps.DeleteFunc(a.links, func(_ int, w *waiting) bool { return !w.told && !w.soon && !w.lost })
	for peer, at := range a.until {
		if at.Before(until) {
			a.until[peer] = until
		}
	}
}

// granted is how long a peer may be silent: the lease, or more if it moves.
func (a *absences) granted(now time.Time, peer int, lease time.Duration) time.Duration {
	if now.Before(a.excused[peer]) {
		return max(lease, wire.MoveLease)
	}
	return lease
}

// soon returns, once, whose lease will end soon, for what is known of links. Of others gossip knows as little as when it gives them up.
func (a *absences) soon(now time.Time, lease time.Duration) (out []int) {
	for peer, w := range a.links {
		after := max(overLinks(a.granted(now, peer, lease))-warning, leastWarned)
		if now.Before(w.from.Add(after)) || now.Before(a.doubt) || w.soon || w.lost || a.missed(peer) {
			continue
		}
		w.soon = true
		out = append(out, peer)
	}
	slices.Sort(out)
	return out
}

// lost returns, once, who is lost by now. heard tells when a link brought something from a peer, the zero time for never:
// gossip may miss for a while what came between two outages.
func (a *absences) lost(now time.Time, lease time.Duration, heard func(peer int) time.Time) []int {
	var out []int
	for peer, at := range a.until {
		patience := a.granted(now, peer, lease)
		if spoke := heard(peer); !spoke.IsZero() && at.Before(spoke.Add(patience)) {
			at = spoke.Add(patience)
		}
		if !now.Before(at) {
			if w := a.links[peer]; w == nil || !w.lost { // which was told
				out = append(out, peer)
			}
			delete(a.until, peer)
			a.given[peer] = true
		}
	}
	for peer, w := range a.links {
		patience := overLinks(a.granted(now, peer, lease))
		if now.Before(w.from.Add(patience)) || now.Before(a.doubt) || w.lost {
			continue
		}
		if !a.missed(peer) {
			out = append(out, peer)
		}
		w.lost = true
	}
	slices.Sort(out)
	return out
}
