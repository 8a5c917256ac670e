package launcher

import (
	"fmt"
	"slices"
	"time"

	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/rendezvous/wire"
)

// An elastic job survives its launcher: a successor goes on from the latest snapshot. So each snapshot is replicated
// before the launcher does anything that follows from it.

// Replicator replicates the snapshots of a job to the electors, which would start its successor.
type Replicator interface {
	// Keep replicates a snapshot, which replaces all before it, and how long hosts, and the launcher, may be silent
	// from now on. It returns the number of the snapshot.
	Keep(snapshot []byte, lease time.Duration) uint64
	// Kept delivers the number of the latest snapshot that is safe.
	Kept() <-chan uint64
	// Answering returns how many electors there are, how many of them have answered within the lease, and how long
	// those wait that are no majority.
	Answering(lease time.Duration) (of, left int, limit time.Duration)
}

// failover keeps the job ready for a successor.
type failover struct {
	replicator Replicator       // nil if the job has no failover
	pending    *pendingSnapshot // nil if nothing waits for a snapshot
	minority   minority         // while something waits
}

// pendingSnapshot is what to do when a snapshot is safe.
type pendingSnapshot struct {
	number uint64
	act    func()
}

// save replicates a snapshot. If then is not nil, it is called when the snapshot is safe; it replaces what waited
// before.
func (f *failover) save(snapshot []byte, lease time.Duration, then func()) {
	number := f.replicator.Keep(snapshot, lease)
	if then != nil {
		f.pending = &pendingSnapshot{number, then}
	}
}

// kept returns what delivers the numbers of safe snapshots.
func (f *failover) kept() <-chan uint64 {
	if f.replicator == nil {
		return nil
	}
	return f.replicator.Kept()
}

// safe does what waited for a snapshot.
func (f *failover) safe(number uint64) {
	if p := f.pending; p != nil && number >= p.number {
		f.pending = nil
		p.act()
	}
}

// check looks whether enough electors answer to make safe what is pending. It returns a line for the user when they are
// too few at first, and an error when they have been for too long.
func (f *failover) check(now time.Time, lease, every time.Duration) (note string, err error) {
	var of, left int
	var limit time.Duration
	if f.pending != nil {
		of, left, limit = f.replicator.Answering(lease)
	}
	known := f.minority.waits > 0
	f.minority.look(now, 2*left <= of && of > 0, every)
	switch {
	case f.minority.waits == 0:
	case f.minority.waits >= limit:
		return "", &failure.MinorityError{Of: of, Left: left}
	case !known:
		return fmt.Sprintf("of %d hosts that decide who carries the job on, %d can: nothing changes until more of them answer, "+
			"and if none does the job ends in %v", of, left, limit), nil
	}
	return "", nil
}

// minority measures how long too few electors have answered.
type minority struct {
	waits  time.Duration
	looked time.Time
}

// look takes the present state, at intervals of every. Time for which this process was stopped does not count: it could
// hear no one.
func (m *minority) look(now time.Time, is bool, every time.Duration) {
	if !is {
		*m = minority{}
		return
	}
	if !m.looked.IsZero() {
		m.waits += min(now.Sub(m.looked), 2*every)
	}
	m.looked = now
}

// checkElectors ends a job that waits in vain for a snapshot to be safe.
func (j *job) checkElectors(now time.Time) {
	if j.stopping {
		return
	}
	note, err := j.failover.check(now, j.lease(), j.timing().LookInterval)
	if err != nil {
		j.stop(err)
	} else if note != "" {
		j.spec.Note("gorun: %s", note)
	}
}

// replicate has the present state kept for a successor, and calls then, if it is not nil, when that is safe. A job
// without failover goes on at once.
func (j *job) replicate(then func()) {
	if j.failover.replicator == nil {
		if then != nil {
			then()
		}
		return
	}
	text, err := j.snapshot()
	if err != nil {
		j.stop(err)
		return
	}
	j.failover.save(text, j.lease(), then)
}

// unaccounted reports whether a host that was taken over has yet to report its state: no world can be made without it.
func (l hostList) unaccounted() bool {
	return slices.ContainsFunc(l, func(h *host) bool {
		return h.adopted && !h.leaving && h.evicted == nil && h.ready == nil && !h.ended
	})
}

// accounted takes the end of a daemon's account. A member that does not know the last roster never got it.
func (j *job) accounted(h *host, a *wire.Account) {
	if m := j.membership; a.HasJob && a.Epoch < m.epoch && m.policy.Member(h.id) {
		j.decide(elastic.Interrupted{Why: fmt.Sprintf("the launcher was lost before %s knew the members of epoch %d", h.name, m.epoch)})
	}
}
