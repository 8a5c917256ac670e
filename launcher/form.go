package launcher

import (
	"cmp"
	"time"

	"gorun/rendezvous/wire"
)

// A job's ranks start as soon as all its hosts are ready. The hosts form their world when the first rank asks for it: to
// many programs it is of no use, and the others take a while to come to it. A job whose ranks do not ask gets a world too,
// a moment after the last of them has started, because daemons watch each other only in one.

// formAfter is how long after the last rank has started. What ranks do first is to load, for which they need the CPUs.
const formAfter = time.Second

// forming is how far the first world of a job is.
type forming struct {
	later  bool // it is not formed yet, and the ranks do not wait for it
	formed bool // it was to be, later
	due    <-chan time.Time
}

// mayWait is true for the first world of a job whose members are fixed, unless somebody wants to know of the hosts' ways:
// which one data goes is told before the ranks say anything, and how fast they are is measured in short jobs too.
func (j *job) mayWait() bool {
	return j.epoch == 1 && j.change == nil && !j.spec.Verbose && j.spec.Measured == nil
}

// formSoon has the world formed some time after all ranks have started.
func (j *job) formSoon() {
	if j.world.later && j.world.due == nil && j.allStarted() {
		j.world.due = time.After(cmp.Or(j.spec.formAfter, formAfter))
	}
}

// form has the hosts form the world.
func (j *job) form() {
	j.world.due = nil
	if !j.world.later || j.stopping {
		return
	}
	j.world.later, j.world.formed = false, true
	j.startup.Reset(j.spec.StartTimeout)
	j.late = time.Time{}
	j.broadcast(&wire.Form{Epoch: j.epoch})
}

// entered is true if all hosts are in a world.
func (j *job) entered() bool {
	for _, h := range j.hosts {
		if j.worlds[h.id].Epoch == 0 {
			return false
		}
	}
	return true
}
