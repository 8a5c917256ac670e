package elastic

import (
	"slices"
	"time"
)

// turnover counts how often all processes were lost, at once or one after the other, without a commit in between, as
// happens when a script fails wherever it runs.
type turnover struct {
	Count int           `json:"count"`
	Until uint32        `json:"until"` // processes that were in a world by then are watched; 0 until the next world
	Epoch uint32        `json:"epoch"` // in which that watch began
	Since time.Duration `json:"since"`
}

// countTurnover counts a turnover when none of the watched processes is left. The count begins anew if one of them had
// committed, or if the watch began long ago: then they have not failed at once.
func (m *Machine) countTurnover() {
	t := &m.job.Turnover
	if t.Until == 0 || slices.ContainsFunc(m.live(), func(p *process) bool { return p.Since <= t.Until }) {
		return
	}
	if t.Count++; m.job.Kept >= t.Epoch || m.job.Now-t.Since >= steady {
		t.Count = 0
	}
	t.Until = 0
}

// dismiss lets a process go. If the reason is not a failure, all processes that are there now are watched from here on.
func (m *Machine) dismiss(p *process) {
	p.Dismissed = true
	if !p.Exited && !m.bad(p.host.site, p.Slot) {
		m.job.Turnover.Until = m.job.Epoch
	}
}

// usedUp reports whether waiting for slots is of no use because the script seems to fail in all of them. With
// BlacklistHost that is when every host is blacklisted for good, as in Horovod. Otherwise all processes must have been
// lost before any committed, and too few slots be left in which none has failed.
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
