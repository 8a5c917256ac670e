package elastic

import (
	"fmt"
	"strings"
	"time"
)

// begin makes the first world.
func (m *Machine) begin() {
	free := m.free()
	pending := 0
	for _, s := range m.sites {
		if s.daemon != nil && s.daemon.State == starting && s.Unmet.Failures == 0 {
			pending++
		}
	}
	if len(free) < m.cfg.NP || m.cfg.Ranks != nil && pending > 0 {
		m.wait(m.cfg.NP, len(free))
		if pending == 0 && !m.job.Ended && !m.shortageNoted && m.job.Now-m.job.Since >= settle {
			m.shortageNoted = true
			m.emit(Note{fmt.Sprintf("%d of %d slots are there: waiting up to %v for more", len(free), m.cfg.NP, m.cfg.Timeout)})
		}
		return
	}
	if pending > 0 && (m.cfg.MaxNP == 0 || len(free) < m.cfg.MaxNP) && m.job.Now-m.job.Since < settle {
		return
	}
	m.roster(nil, m.firstSlots(free), "")
}

// entered notes that a host is in the present world.
func (m *Machine) entered(ev Committed) {
	d := m.daemon(ev.Host)
	if d == nil || ev.Epoch != m.job.Epoch {
		return
	}
	d.Entered, m.job.Committed = true, true
	if m.job.Broken == "" && !m.job.Start.Failing {
		m.job.First = nil
	}
}

// resume makes the next world, or waits until it can.
func (m *Machine) resume(reason string) {
	need := m.need()
	wish := need
	expired := m.job.Waiting && m.job.Now-m.job.Since >= m.cfg.Timeout
	if m.job.Broken != "" && m.cfg.OnFailure == Wait && !expired && !m.job.Finished {
		wish = max(need, len(m.world))
		if m.cfg.Listed {
			wish = max(need, min(wish, m.possible()))
		}
	}
	// A new process has no state yet, and may be dead already without the launcher knowing it. So processes leave
	// withdrawn hosts only when all have left a world at a commit, after HostsChanged: not after a failure.
	keep, add := m.next(wish, m.job.Broken == "" || m.cfg.OnFailure != Shrink, m.job.Broken == "" && m.job.Offered != "")
	if have := len(keep) + len(add); have < wish {
		m.wait(wish, have)
		return
	}
	switch {
	case reason == "":
		reason = m.changes(keep, add)
	case len(keep) == 0:
		reason += ", and no process of before is left: training goes on from what the script loads"
	}
	if m.job.Broken != "" || len(add) > 0 || len(keep) < len(m.world) || m.job.Now-m.began >= lastsWell {
		m.anew = 0
	} else if m.job.Now-m.began < anewPause(m.anew) {
		return
	}
	if m.anew++; m.anew == anewTold {
		m.emit(Note{"the ranks have begun anew again and again, though no host was lost: is there an error that the script catches?"})
	}
	if m.spent() {
		m.endFor(TooManyResets, fmt.Sprintf("the reset limit of %d is reached: %s", m.cfg.ResetLimit, reason))
		return
	}
	m.job.Resets++
	m.roster(keep, add, reason)
}

const (
	// lastsWell is how long a world has to last to end a row of worlds with the same members.
	lastsWell = 10 * time.Second
	// anewAtOnce is how many worlds with the same members may follow each other without a pause, anewTold after how
	// many the user is warned.
	anewAtOnce, anewTold = 4, 8
)

// anewPause returns how long a world lasts at least when so many with the same members came before it. Otherwise an
// error that ends every world would begin a hundred of them a second.
func anewPause(before int) time.Duration {
	if before < anewAtOnce {
		return 0
	}
	return min(50*time.Millisecond<<min(before-anewAtOnce, 10), time.Second)
}

// spent reports whether the reset limit permits no further world.
func (m *Machine) spent() bool { return m.cfg.ResetLimit >= 0 && m.job.Resets >= m.cfg.ResetLimit }

// changes describes what is different in the next world when nothing went wrong in this one.
func (m *Machine) changes(keep []*process, add []slot) string {
	before, after := map[string]int{}, map[string]int{} // ranks by host
	added := map[string]bool{}
	for _, p := range m.live() {
		before[p.host.site.Name]++
	}
	for _, p := range keep {
		after[p.host.site.Name]++
	}
	for _, s := range add {
		after[s.host.site.Name]++
		added[s.host.site.Name] = true
	}
	var joined, grew, shrank, left []string
	for _, s := range m.sites {
		switch was, is := before[s.Name], after[s.Name]; {
		case was == 0 && is > 0:
			joined = append(joined, s.Name)
		case was > 0 && is == 0:
			left = append(left, s.Name)
		case is > was, is == was && added[s.Name]: // by as many slots as it has lost
			grew = append(grew, s.Name)
		case is < was:
			shrank = append(shrank, s.Name)
		}
	}
	var said []string
	for _, change := range []struct {
		names []string
		what  string
	}{{joined, "joined"}, {grew, "gained slots"}, {shrank, "lost slots"}, {left, "left"}} {
		if len(change.names) > 0 {
			said = append(said, strings.Join(change.names, ", ")+" "+change.what)
		}
	}
	if said == nil {
		if p := m.asked; p != nil {
			return fmt.Sprintf("every process asked for another world, process %d after an error: %s", p.number, p.why)
		}
		return "every process asked for another world"
	}
	return strings.Join(said, " and ")
}

// wait notes that slots are missing, and gives up when that has lasted too long or can only last.
func (m *Machine) wait(need, have int) {
	usedUp := m.usedUp()
	hopeless := usedUp || m.cfg.Listed && m.possible() < m.need()
	if !m.job.Waiting {
		m.job.Waiting, m.job.Since = true, m.job.Now
		if !hopeless {
			m.emit(Note{fmt.Sprintf("%s; %d of %d slots are there: waiting up to %v for more", m.job.Broken, have, need, m.cfg.Timeout)})
		}
	}
	if usedUp || hopeless && m.job.Epoch > 0 && len(m.live()) == 0 {
		if usedUp && m.cfg.Blacklist == BlacklistHost {
			m.emit(Note{"a process has failed on every host, and --blacklist host uses none of them again"})
		}
		m.allGone()
		return
	}
	over := m.cfg.Timeout > 0 && m.job.Now-m.job.Since >= m.cfg.Timeout
	if !hopeless && !over {
		return
	}
	why := fmt.Sprintf("too few slots: %d needed, %d there after %v", need, have, m.cfg.Timeout)
	if hopeless {
		why = fmt.Sprintf("too few slots: %d needed, %d can be used", need, m.possible())
	}
	if m.job.First != nil {
		why += ", after " + m.job.First.Why
	}
	m.endFor(TooFew, why)
}

// offer notifies the processes that a world with other members could begin, once for each such set of members. What is
// to take the place of processes that leave loads its program first.
func (m *Machine) offer() {
	keep, add := m.next(m.need(), true, true)
	removed := len(keep) < len(m.live())
	tooFew := len(keep)+len(add) < m.need()                                                  // those on a host that was blacklisted have yet to be replaced
	if tooFew || m.loading(len(keep)+len(add)) || !removed && (len(add) == 0 || m.spent()) { // a host that is back is no reason to end the job
		m.job.Offered = ""
		return
	}
	if who := members(keep, add); who != m.job.Offered {
		m.job.Offered = who
		m.job.Stamp++
		m.emit(HostsChanged{Epoch: m.job.Epoch, Added: len(add) > 0, Removed: removed, Stamp: m.job.Stamp})
	}
}
