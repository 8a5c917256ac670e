package elastic

import (
	"fmt"
	"time"
)

// A slot whose process failed is blacklisted, as in Horovod: only --blacklist-cooldown-range makes it usable again.
// Hosts are tried again without that flag, ever more rarely, as long as they are listed: a lost one may be restarting,
// and one that was never up may still boot.
const (
	// tryFirst is the first pause before a host that did not start is tried again. The pause grows to tryMost, or to
	// aliveMost if the machine is known to be there. tryMost is short: a try costs little, and a host should be used
	// soon after it has booted.
	tryFirst, tryMost, aliveMost = time.Second, 8 * time.Second, 30 * time.Second
	// refusedFirst and refusedMost are for a host that refuses the login: sshd and its guards lock out clients that
	// come too often.
	refusedFirst, refusedMost = 30 * time.Second, 10 * time.Minute
	// backFirst is the first pause for a host that was lost after it was up. It is endedFirst if only the daemon ended,
	// because the host may be shutting down, and aliveFirst if the machine is there, because then what keeps it from
	// its peers probably lasts. Each return may disturb the job again, so the pause grows up to backMost.
	backFirst, endedFirst, aliveFirst, backMost = time.Second, 5 * time.Second, 30 * time.Second, time.Hour
	// steady is how long a host has to be up before its earlier losses are forgotten.
	steady = 10 * time.Minute
)

// ban keeps a slot or a host from being used.
type ban struct {
	Failures int           `json:"failures"`
	Until    time.Duration `json:"until"`
	Forever  bool          `json:"forever"` // until discovery withdraws the host
	Last     time.Duration `json:"last"`    // when it failed last
	Killed   bool          `json:"killed"`  // by KILL then, which no library does to its own process
}

func (b *ban) holds(now time.Duration) bool { return b != nil && (b.Forever || now < b.Until) }

// fail counts a failure and bans for first·2ⁿ⁻¹ + jitter·first, at most most. Jitter keeps what failed together from
// coming back together. If first is 0, the ban is for good.
func (b *ban) fail(now, first, most time.Duration, jitter func() float64) {
	b.Failures++
	b.Last = now
	if first == 0 {
		b.Forever = true
		return
	}
	delay := first
	for i := 1; i < b.Failures && delay < most; i++ {
		delay *= 2
	}
	if jitter != nil {
		delay += time.Duration(jitter() * float64(first))
	}
	b.Until = now + min(delay, most)
}

// suspect counts the failure of a process in a slot. Processes that fail together on a host count once against it.
func (m *Machine) suspect(s *site, slot, code int) {
	slot = m.blacklisted(slot)
	if s.Failed[slot] == nil {
		s.Failed[slot] = &ban{}
	}
	if b := s.Failed[slot]; !b.holds(m.job.Now) {
		b.fail(m.job.Now, m.cfg.CooldownMin, m.cfg.CooldownMax, m.cfg.Jitter)
		b.Killed = code == killed
	}
}

// killed is the exit code of a process that KILL has ended.
const killed = 128 + 9

// excuse lifts the bans of slots on other hosts whose processes failed after the lost host was last heard. A library
// that does not survive the loss of a peer, such as Gloo or NCCL, ends its process long before the launcher knows that
// the peer is gone.
func (m *Machine) excuse(lost *daemon, silent time.Duration) {
	for _, s := range m.sites {
		excused := 0
		for _, b := range s.Failed {
			if b.holds(m.job.Now) && b.Last >= m.job.Now-silent && !b.Killed && s != lost.site {
				b.Failures, b.Forever, b.Until = b.Failures-1, false, m.job.Now
				excused++
			}
		}
		if excused > 0 && s.slots > 0 {
			m.emit(Note{fmt.Sprintf("a process failed on %s after %s fell silent: it may run there again", s.Name, lost.site.Name)})
		}
	}
}

// blacklisted returns under which number the failures in a slot are kept.
func (m *Machine) blacklisted(slot int) int {
	if m.cfg.Blacklist == BlacklistHost {
		return 0
	}
	return slot
}

// bad reports whether a slot is banned because a process failed there, badForGood whether that ban has no end of its
// own.
func (m *Machine) bad(s *site, slot int) bool { return s.Failed[m.blacklisted(slot)].holds(m.job.Now) }

func (m *Machine) badForGood(s *site, slot int) bool {
	b := s.Failed[m.blacklisted(slot)]
	return b != nil && b.Forever
}

// bar keeps a host that was lost, or did not start, from being used for a while, and notes when it is tried again.
func (m *Machine) bar(d *daemon, unmet bool, ev HostLost) {
	s := d.site
	b := &s.Lost
	switch {
	case unmet:
		first, most := tryFirst, tryMost
		switch {
		case ev.Refused:
			first, most = refusedFirst, refusedMost
		case ev.Alive || ev.Ended:
			most = aliveMost
		}
		b = &s.Unmet
		b.fail(m.job.Now, first, most, m.cfg.Jitter)
		if b.Failures > 1 || s.Lost.Failures > 0 {
			return // the user knows
		}
	case m.cfg.CooldownMin > 0:
		b.fail(m.job.Now, m.cfg.CooldownMin, m.cfg.CooldownMax, m.cfg.Jitter)
	default:
		if m.job.Now-d.Since >= steady {
			*b = ban{}
		}
		first := backFirst
		switch {
		case ev.Ended:
			first = endedFirst
		case ev.Alive:
			first = aliveFirst
		}
		b.fail(m.job.Now, first, backMost, m.cfg.Jitter)
	}
	if s.slots > 0 && !m.job.Finished {
		m.emit(Note{fmt.Sprintf("%s is tried again in %v, and then ever more rarely, as long as it is listed",
			s.Name, (b.Until - m.job.Now).Round(time.Second))})
	}
}
