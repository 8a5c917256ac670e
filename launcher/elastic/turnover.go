package elastic

import (
	"slices"
	"time"
)

// turnover counts how often all processes were lost, at once or one after the other, without a commit in between: so
// fails a script that fails wherever it runs.
type turnover struct {
	Count int           `json:"count"`
	Below int           `json:"below"` // the processes with lower numbers have been there since the last time; 0 before the next world
	Epoch uint32        `json:"epoch"` // in which that was
	Since time.Duration `json:"since"`
}

// failsEverywhere reports whether all processes were lost as often as LossLimit allows.
func (m *Machine) failsEverywhere() bool {
	return m.cfg.LossLimit > 0 && m.job.Turnover.Count >= m.cfg.LossLimit && !m.job.Finished
}

// countTurnover counts when none of the processes is left that were there the last time. If one of them had committed,
// or if it was long ago, they have not failed at once.
func (m *Machine) countTurnover() {
	t := &m.job.Turnover
	if t.Below == 0 || slices.ContainsFunc(m.live(), func(p *process) bool { return p.number < t.Below }) {
		return
	}
	if t.Count++; m.job.Kept >= t.Epoch || m.job.Now-t.Since >= steady {
		t.Count = 0
	}
	t.Below = 0
}

// beginTurnover has the processes count that are there now.
func (m *Machine) beginTurnover() {
	m.job.Turnover.Below, m.job.Turnover.Epoch, m.job.Turnover.Since = len(m.processes), m.job.Epoch, m.job.Now
}

// dismiss lets a process go. If that is for another reason than a failure, the processes that are there now count from
// here on.
func (m *Machine) dismiss(p *process) {
	p.dismissed = true
	if !p.exited && !m.bad(p.host.site, p.slot) {
		m.job.Turnover.Below = len(m.processes)
	}
}

// usedUp reports whether waiting for slots is of no use because the script seems to fail in all there are: with
// BlacklistHost when every host is blacklisted for good, as Horovod has it; otherwise when all processes were lost
// before any had committed anything, and too few slots are left in which none has failed.
func (m *Machine) usedUp() bool {
	good, bad := 0, 0
	for _, s := range m.sites {
		for slot := range s.slots {
			if m.badForGood(s, slot) {
				bad++
			} else {
				good++
			}
		}
	}
	switch {
	case m.job.Finished || bad == 0:
		return false
	case m.cfg.Blacklist == BlacklistHost && good == 0:
		return true
	}
	return m.job.Turnover.Count > 0 && len(m.live()) == 0 && good < m.cfg.MinNP && good+bad >= m.cfg.MinNP
}
