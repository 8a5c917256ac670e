package launcher

import (
	"time"

	"gorun/launcher/stall"
	"gorun/rendezvous/wire"
)

// answerTime is how long daemons have to report what they wait for. A report names the ones that did not answer.
const answerTime = 2 * time.Second

// stalls follows operations that wait for too long. When a daemon reports one, all are asked, and package stall puts
// their answers together.
type stalls struct {
	asking   bool
	again    bool // something has changed since
	answers  stall.Answers
	timeout  <-chan time.Time
	reports  stall.Reports
	hinted   bool
	recorded bool
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
	case m.Asked && s.asking:
		s.answers.By[h.id] = m
		return len(s.answers.By) >= hosts.running()
	case m.Asked: // too late
	case s.asking:
		s.again = true
	default:
		s.ask(hosts)
	}
	return false
}
