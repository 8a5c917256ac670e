package elastic

import (
	"fmt"
	"slices"
)

// rules decide how the machine reacts to events. There are two sets: an elastic job goes on in another world, and a job
// of fixed size ends.
type rules interface {
	// decide does what the facts now call for.
	decide()
	// evicted gives up a host whose daemon still lives, or may.
	evicted(d *daemon, ev HostEvicted)
	// lost takes a host whose daemon is gone, and was not ordered to stop. unmet is true if it was never up.
	lost(d *daemon, ev HostLost, unmet bool)
	// exited takes a process that has ended.
	exited(p *process, ev Exited)
}

// fixed reports whether the size of the job is fixed.
func (m *Machine) fixed() bool { return m.cfg.OnFailure == EndJob }

// use has the machine follow the rules of its policy.
func (m *Machine) use() *Machine {
	if m.fixed() {
		m.rules = fixedRules{m}
	} else {
		m.rules = elasticRules{m}
	}
	return m
}

// elasticRules are the rules of an elastic job.
type elasticRules struct{ *Machine }

func (r elasticRules) decide() {
	r.startHosts()
	r.countTurnover()
	r.tendSpares()
	switch {
	case r.job.Epoch == 0:
		r.begin()
	case r.job.Finished && len(r.live()) == 0:
		r.allGone()
	case r.cfg.LossLimit > 0 && r.job.Turnover.Count >= r.cfg.LossLimit && !r.job.Finished:
		r.emit(Note{fmt.Sprintf("all processes were lost, as often as --loss-limit %d allows, and none had committed anything",
			r.cfg.LossLimit)})
		r.allGone()
	case r.job.Broken != "":
		r.resume(r.job.Broken)
	case r.allLeft():
		r.resume("")
	case r.job.Committed:
		r.offer()
	}
}

func (r elasticRules) evicted(d *daemon, _ HostEvicted) {
	if !d.Failed {
		d.Failed = true
		r.emit(HangUp{d.id})
	}
}

func (r elasticRules) lost(d *daemon, ev HostLost, unmet bool) {
	switch {
	case !unmet:
		r.emit(GoesOnWithout{d.id, ev.Reason})
	case !slices.Contains(d.site.noted, ev.Reason): // it may be tried again and again
		d.site.noted = append(d.site.noted, ev.Reason)
		r.emit(Note{fmt.Sprintf("%s cannot be used: %s", d.site.Name, ev.Reason)})
	}
	if d.Born == d.site.Born {
		r.bar(d, unmet, ev)
	}
	if !unmet && ev.Silent > 0 {
		r.excuse(d, ev.Silent)
	}
	if d.Member {
		d.Member = false
		why := fmt.Sprintf("host %s was lost: %s", d.site.Name, ev.Reason)
		r.failed(End{Cause: HostFailed, Process: -1, Host: d.id, Why: why})
	}
}

func (r elasticRules) exited(p *process, ev Exited) {
	if p.host.Failed {
		return // a consequence: it counts as lost with its host
	}
	p.ends()
	if ev.Code != 0 && !ev.Asked && (p.Since > 0 || p.Ready) {
		r.emit(ProcessLost{p.number})
	}
	switch {
	case p.Since == 0:
		r.spareExited(p, ev)
	case p.Dismissed: // it was stopped
	case ev.Code == 0:
		p.OK, r.job.Finished = true, true
	default:
		r.suspect(p.host.site, p.Slot, ev.Code)
		r.failed(p.failure(ev.Code))
	}
}
