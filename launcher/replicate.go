package launcher

import "time"

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
