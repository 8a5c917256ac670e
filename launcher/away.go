package launcher

import (
	"fmt"
	"slices"
	"time"

	"gorun/launcher/elastic"
)

// A host whose connection has ended, and that cannot be reached, may be cut off or dead. It is dead if it has said so: its
// kernel ends the connections of processes that are gone, with the launcher or with other hosts. Otherwise it has the time that
// any silent host has. That time is the launcher's to count where nobody else does: the other hosts of a world judge each other,
// but there may be none, or none that is heard itself.

// mending is how long a host that has ended its connections may be silent, for a process of ssh may die for itself, and
// connections may be reset on their way.
const mending = 1500 * time.Millisecond

// mendingBlind is the same where it is not known whether the host answers: in this time a program of the user's is to have logged in.
const mendingBlind = 5 * time.Second

// away is how a host cannot be reached.
type away struct {
	since  time.Time // when the connection ended; zero if there is one
	silent time.Time // when the host was last known to be there since; zero while it answers
	hungUp bool      // the host has ended the connection
	blind  bool      // that it answers is known only when a login has succeeded
}

func (a away) mending() time.Duration {
	if a.blind {
		return mendingBlind
	}
	return mending
}

// search gives up the hosts that cannot be reached, if there is more to it than that, or it lasts too long, and those that are
// silent for too long where no other host would say so.
func (j *job) search(now time.Time) {
	for _, h := range j.hosts {
		quiet, a, ok := j.missed(now, h)
		if !ok {
			continue
		}
		patience := j.patience(now, h)
		expired := quiet >= patience && j.alone.since.IsZero()
		if a.since.IsZero() {
			if expired && j.ready[h.id] != nil && !j.watched(now, h) {
				j.giveUpOn(h, fmt.Sprintf("silent for %v", patience))
			}
			continue
		}
		if j.change.policy.Later() && !j.stopping {
			j.decide(elastic.Wanted{}) // in a world hosts tell each other whether the launcher lives, and who hung up
		}
		if j.silences.quiet(now, a.since) < mending {
			continue
		}
		// Of a host that does not run anything yet, or any more, there is nothing to lose.
		idle := j.ready[h.id] == nil || h.leaving || j.stopping
		silent := !a.silent.IsZero() && j.silences.quiet(now, a.silent) >= a.mending()
		if silent && (idle || a.hungUp || j.partedFrom(h)) || expired {
			j.giveUpOn(h, fmt.Sprintf("cannot be reached since %s", a.since.Format(time.TimeOnly)))
		}
	}
}

// missed is for how long nothing has been heard of a host, and how it cannot be reached. It is not ok for one that has not been started or
// has ended, nor for one whose connection ends with it.
func (j *job) missed(now time.Time, h *host) (quiet time.Duration, a away, ok bool) {
	d := h.daemon.Load()
	if d == nil || d.Away == nil || j.ended[h.id] {
		return 0, away{}, false
	}
	a = d.Away()
	last := h.heard.last(now)
	if last.IsZero() { // it has yet to say anything
		if last = a.since; last.IsZero() {
			last = now
		}
	}
	return j.silences.quiet(now, last), a, true
}

// giveUpOn takes a host for lost, by itself.
func (j *job) giveUpOn(h *host, why string) {
	h.unreachable.Store(&why)
	h.hangUp() // its conversation reports the loss
}

// watched is true if there is another host of this one's world, itself heard, which has met it and would say that it is silent.
func (j *job) watched(now time.Time, h *host) bool {
	return j.member(h) && slices.ContainsFunc(j.hosts, func(other *host) bool {
		return other != h && j.member(other) && j.met(h, other) && j.hears(other, now)
	})
}

// met is true for two hosts that were in one world the last time that they were in any, as one of them at least has told.
func (j *job) met(a, b *host) bool {
	of, other := j.worlds[a.id], j.worlds[b.id]
	return of.Epoch > 0 && of.Epoch == other.Epoch || slices.Contains(of.Order, b.id) || slices.Contains(other.Order, a.id)
}

// partedFrom is true if a host that is left says that this one has ended their connections.
func (j *job) partedFrom(h *host) bool {
	for _, other := range j.hosts {
		if other.parted[h.id] && !j.ended[other.id] {
			return true
		}
	}
	return false
}
