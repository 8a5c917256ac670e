package launcher

import (
	"fmt"
	"time"

	"gorun/launcher/failure"
	"gorun/rendezvous/liveness"
)

// An elastic job survives its launcher: a successor goes on from the latest snapshot. So each snapshot is replicated
// before the launcher does anything that follows from it.

// failover keeps the job ready for a successor.
type failover struct {
	replicator Replicator        // nil if the job has no failover
	pending    []pendingSnapshot // what waits for snapshots, in their order
	minority   minority          // while something waits
}

// pendingSnapshot is what to do when a snapshot is safe.
type pendingSnapshot struct {
	number uint64
	act    func()
}

// save replicates a snapshot. If then is not nil, it is called when the snapshot is safe, after what waited before.
func (f *failover) save(snapshot []byte, lease time.Duration, then func()) {
	number := f.replicator.Keep(snapshot, lease)
	if then != nil {
		f.pending = append(f.pending, pendingSnapshot{number, then})
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
	for len(f.pending) > 0 && number >= f.pending[0].number {
		p := f.pending[0]
		f.pending = f.pending[1:]
		p.act()
	}
}

// check reports whether enough electors answer to make safe what is pending. It returns a line for the user when they
// become too few, and an error when they have been too few for too long.
func (f *failover) check(now time.Time, lease, every time.Duration) (note string, err error) {
	var of, left int
	var limit time.Duration
	if len(f.pending) > 0 {
		of, left, limit = f.replicator.Answering(lease)
	}
	known := f.minority.waits > 0
	f.minority.look(now, 2*left <= of && of > 0, every)
	switch {
	case f.minority.waits == 0:
	case f.minority.waits >= limit:
		return "", &failure.MinorityError{Of: of, Left: left}
	case !known:
		return fmt.Sprintf("too few hosts answer to elect the job's launcher (%d of %d): nothing changes until more do; "+
			"otherwise the job ends in %v", left, of, limit), nil
	}
	return "", nil
}

// minority measures how long too few electors have answered.
type minority struct {
	waits  time.Duration
	pauses liveness.Gaps
}

// look notes once in every whether too few electors answer. Time for which this process was stopped does not count: it
// could hear no host then.
func (m *minority) look(now time.Time, is bool, every time.Duration) {
	if !is {
		*m = minority{}
		return
	}
	m.pauses.Limit = 2 * every
	gap, _ := m.pauses.Look(now)
	m.waits += min(gap, m.pauses.Limit)
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
