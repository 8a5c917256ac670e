package launcher

import (
	"slices"
	"time"

	"gorun/launcher/stall"
	"gorun/rendezvous/wire"
)

// answerTime is how long daemons have to report what they wait for. A report names the ones that did not answer.
const answerTime = 2 * time.Second

// recordPause is the least time between recordings of stalls, as each of them asks all ranks for their stacks.
const recordPause = time.Minute

// stalls follows operations that wait for too long. When a daemon reports one, all are asked, and package stall puts
// their answers together.
type stalls struct {
	asking   bool
	again    bool // something has changed since
	answers  stall.Answers
	timeout  <-chan time.Time
	reports  stall.Reports
	hinted   bool
	recorded bool // the present stall was recorded
	last     time.Time
}

// toRecord reports whether to record the present stall: each stall once, and none soon after another recording. A stall
// is over when no operation waits for too long.
func (s *stalls) toRecord(now time.Time) bool {
	if !s.reports.Waiting() {
		s.recorded = false
		return false
	}
	if s.recorded || !s.last.IsZero() && now.Sub(s.last) < recordPause {
		return false
	}
	s.recorded, s.last = true, now
	return true
}

// ask begins a round.
func (s *stalls) ask(hosts hostList) {
	s.asking, s.again = true, false
	s.answers = stall.Answers{Hosts: hosts.names(), By: map[int]*wire.Stalled{}}
	s.timeout = time.After(answerTime)
	hosts.broadcast(&wire.AskStalled{})
}

// take takes a report, and reports whether it was the last answer of a round.
func (s *stalls) take(h *host, m *wire.Stalled, hosts hostList) bool {
	switch {
	case m.Asked && s.asking && h.id < len(s.answers.Hosts):
		s.answers.By[h.id] = m
		return !slices.ContainsFunc(hosts[:len(s.answers.Hosts)], func(h *host) bool { return h.up && !h.ended && s.answers.By[h.id] == nil })
	case m.Asked: // too late, or nobody asked
	case s.asking:
		s.again = true
	default:
		s.ask(hosts)
	}
	return false
}
