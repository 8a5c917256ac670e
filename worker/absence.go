package worker

import (
	"slices"
	"time"

	"gorun/rendezvous/gossip"
	"gorun/rendezvous/wire"
)

// absences say when a peer of whom gossip hears nothing any more is taken for lost. A virtual machine that moves is
// silent for seconds or minutes and then goes on, so there may be reasons to wait for longer than gossip does.
type absences struct {
	patience time.Duration     // with everybody, beyond that of gossip
	fixed    bool              // by the user: no host is excused
	until    map[int]time.Time // of those that are silent: when they are lost
	excused  map[int]time.Time // of those that announced that they move: until when that is believed
	doubt    time.Time         // until when this host does not trust itself, for it stood still
	given    map[int]bool      // those that were found lost, and were not heard since
}

// movePatience is how much longer than gossip one waits for a host that moves.
const movePatience = wire.MoveLease - gossip.Lease

func newAbsences() *absences {
	return &absences{until: map[int]time.Time{}, excused: map[int]time.Time{}, given: map[int]bool{}}
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
	return lost
}

// excuse says that a peer will be silent, at some time until then; the zero time that it will be no more.
func (a *absences) excuse(peer int, until time.Time) {
	if until.IsZero() || a.fixed {
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
	for peer, at := range a.until {
		if at.Before(until) {
			a.until[peer] = until
		}
	}
}

// lost returns, once, who is lost by now. heard tells when a link brought something from a peer, the zero time for never:
// gossip may miss for a while what came between two outages.
func (a *absences) lost(now time.Time, lease time.Duration, heard func(peer int) time.Time) []int {
	var out []int
	for peer, at := range a.until {
		patience := lease
		if now.Before(a.excused[peer]) {
			patience = max(patience, wire.MoveLease)
		}
		if spoke := heard(peer); !spoke.IsZero() && at.Before(spoke.Add(patience)) {
			at = spoke.Add(patience)
		}
		if !now.Before(at) {
			out = append(out, peer)
			delete(a.until, peer)
			a.given[peer] = true
		}
	}
	slices.Sort(out)
	return out
}
