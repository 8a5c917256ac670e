package elastic

import (
	"slices"
	"time"
)

// A job of fixed size ends with the first failure, so its rules decide little once it runs. They decide more while it
// starts: a start that fails gathers the failures of all hosts for one report, a start may take too long, and ranks may
// start before their world is formed.

const (
	// gatherTime is how long a failing start waits for the other hosts.
	gatherTime = 5 * time.Second
	// askAgain is how often a start that takes too long is reported.
	askAgain = time.Second
)

// start is how far the start of a job of fixed size has come.
type start struct {
	Failing bool          `json:"failing"` // a host has failed; the others may be about to
	Since   time.Duration `json:"since"`   // when the first one failed
	Later   bool          `json:"later"`   // the ranks do not wait for the first world, which is not formed yet
	Formed  bool          `json:"formed"`  // the first world was formed after the start of its ranks
	Due     time.Duration `json:"due"`     // when it is formed if no rank asks; 0 until all ranks run
	Limit   time.Duration `json:"limit"`   // when the start has taken too long; 0 for never
}

// Starting reports whether a job of fixed size is still starting: some of its processes have not started, or its hosts
// are forming the world that its processes did not wait for.
func (m *Machine) Starting() bool {
	return m.fixed() && (!m.allStarted() || m.job.Start.Formed && !m.allEntered())
}

// Later reports whether the processes run, or start, before their world is formed.
func (m *Machine) Later() bool { return m.job.Start.Later }

// Failed returns the hosts for which the start of a job of fixed size fails.
func (m *Machine) Failed() []int {
	var ids []int
	for _, d := range m.daemons {
		if d.Failed && m.job.Start.Failing {
			ids = append(ids, d.id)
		}
	}
	return ids
}

// fixedRules are the rules of a job of fixed size.
type fixedRules struct{ *Machine }

func (r fixedRules) decide() {
	s := &r.job.Start
	switch {
	case r.job.Ended:
	case s.Failing:
		if r.job.Now-s.Since >= gatherTime || r.decided() {
			r.endFailed()
		}
	case r.job.Epoch == 0:
		if r.startHosts(); r.allUp() {
			r.begin()
		}
	case r.allEnded():
		r.end(End{Cause: Finished, Process: -1, Host: -1})
	case r.allAsked():
		r.beginAnew()
	}
	if !r.job.Ended && (r.Starting() || s.Later) {
		r.hastenStart()
	}
}

// hastenStart forms the first world if it is due, and reports a start that takes too long.
func (r fixedRules) hastenStart() {
	s := &r.job.Start
	if s.Later && s.Due == 0 && r.allStarted() {
		s.Due = r.job.Now + r.cfg.FormAfter
	}
	if s.Due > 0 && r.job.Now >= s.Due {
		r.form()
	}
	if s.Limit > 0 && r.job.Now >= s.Limit && r.Starting() {
		s.Limit = r.job.Now + askAgain
		r.emit(StartLate{})
	}
}

// evicted fails a host. It hangs up, unless the daemon itself asked for the eviction: then it can be reached, and stops
// its processes as at any other end.
func (r fixedRules) evicted(d *daemon, ev HostEvicted) {
	hangUp := !d.Failed && !ev.Own
	if r.hostFails(d, ev.Reason); hangUp {
		r.emit(HangUp{d.id})
	}
}

func (r fixedRules) lost(d *daemon, ev HostLost, _ bool) { r.hostFails(d, ev.Reason) }

func (r fixedRules) exited(p *process, ev Exited) {
	p.ends()
	switch {
	case r.job.Start.Failing: // a consequence
	case ev.Asked:
		r.hostFails(p.host, "its daemon has stopped its processes")
	case ev.Code != 0:
		r.end(p.failure(ev.Code))
	default:
		p.OK, r.job.Finished = true, true
	}
}

func (m *Machine) allStarted() bool {
	return m.job.Epoch > 0 && !slices.ContainsFunc(m.processes, func(p *process) bool { return !p.Started })
}

func (m *Machine) allEntered() bool {
	return !slices.ContainsFunc(m.daemons, func(d *daemon) bool { return !d.Entered })
}

// hostFails notes that a host cannot take part any more.
func (m *Machine) hostFails(d *daemon, why string) {
	if d.Failed {
		return
	}
	d.Failed = true
	if !m.job.Start.Failing {
		m.job.Start.Failing, m.job.Start.Since = true, m.job.Now
		m.job.First = &End{Cause: HostFailed, Process: -1, Host: d.id, Why: "host " + d.site.Name + " was lost: " + why}
	}
}

// startFailed ends a start that takes too long because of some hosts.
func (m *Machine) startFailed(hosts []int) {
	for _, id := range hosts {
		m.hostFails(m.daemons[id], "its start takes too long")
	}
	if m.job.Start.Failing {
		m.endFailed()
	}
}

func (m *Machine) allUp() bool {
	return len(m.daemons) > 0 && !slices.ContainsFunc(m.daemons, func(d *daemon) bool { return d.State != up })
}

// decided reports whether a start that fails need not wait any longer: no host is still starting, or a host was lost
// after all processes had started, or all processes have ended.
func (m *Machine) decided() bool {
	lost, open := false, false
	for _, d := range m.daemons {
		lost = lost || d.Failed && d.State == gone
		waits := d.State == starting || m.job.Start.Formed && !d.Entered
		open = open || waits && d.State != gone && !d.Failed
	}
	return !open || lost && m.allStarted() || m.allEnded()
}

// endFailed ends the job and names the hosts that have failed.
func (m *Machine) endFailed() {
	e := *m.job.First
	e.Hosts, e.Starting = m.Failed(), m.Starting()
	m.end(e)
}

func (m *Machine) allEnded() bool {
	return m.job.Epoch > 0 && !slices.ContainsFunc(m.processes, func(p *process) bool { return !p.Exited })
}

// allAsked reports whether all processes that have not ended wait for another world.
func (m *Machine) allAsked() bool {
	return !slices.ContainsFunc(m.world, func(p *process) bool { return !p.Exited && p.Left < m.job.Epoch })
}

// beginAnew begins another world with the same members, once all processes have left theirs. If some have finished, it
// ends the job.
func (m *Machine) beginAnew() {
	if m.job.Finished {
		why := "some processes wait for another world, and the others have ended"
		m.end(End{Cause: Divided, Process: -1, Host: -1, Why: why})
		return
	}
	m.job.Resets++
	m.roster(slices.Clone(m.world), nil, "its ranks began anew")
}

// form orders the hosts to form the first world, if its processes started without waiting for it.
func (m *Machine) form() {
	s := &m.job.Start
	s.Due = 0
	if !s.Later {
		return
	}
	s.Later, s.Formed = false, true
	m.limitStart()
	m.emit(Form{m.job.Epoch})
}

// limitStart begins the time limit of the start anew.
func (m *Machine) limitStart() {
	if m.cfg.StartTimeout > 0 {
		m.job.Start.Limit = m.job.Now + m.cfg.StartTimeout
	}
}
