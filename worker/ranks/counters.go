package ranks

import (
	"cmp"

	"gorun/rendezvous/wire"
	"gorun/worker/counters"
)

// count gives a process that is about to start a page for its counters. A rank does without if there is no memory.
func (r *Ranks) count(number int) {
	page, err := counters.NewPage()
	if err != nil {
		r.cfg.Log.Warn("a rank counts nothing", "process", number, "err", err)
		return
	}
	r.of(number).counters = page
	if r.of(number).stacks, err = counters.NewStacks(); err != nil {
		r.cfg.Log.Warn("a rank writes no stacks", "process", number, "err", err)
	}
}

// pid returns the id of the process that speaks for a rank: the one with the session, or else the one that was started.
func (r *Ranks) pid(number int) int { return cmp.Or(r.cfg.Sessions.PID(number), r.of(number).pid) }

// split returns what a process has counted, nil if it counted nothing.
func (r *Ranks) split(number int) *wire.Split {
	page := r.of(number).counters
	if page == nil {
		return nil
	}
	c := page.Read()
	if c.Elapsed == 0 {
		return nil
	}
	return &wire.Split{Elapsed: c.Elapsed.Microseconds(), Steps: c.Steps, Step: c.Step.Microseconds(),
		Data: c.Data.Microseconds(), Others: c.Others.Microseconds(), Communication: c.Communication.Microseconds(),
		Hidden: c.Hidden.Microseconds(), Operations: c.Operations, Activity: c.Activity.String(),
		For: c.For.Microseconds()}
}
