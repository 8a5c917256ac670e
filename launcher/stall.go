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
	asking  bool
	again   bool // something has changed since
	answers stall.Answers
	timeout <-chan time.Time
	reports stall.Reports
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

// stalled takes a report of a daemon.
func (j *job) stalled(h *host, m *wire.Stalled) {
	switch {
	case j.stopping || !j.stalls.take(h, m, j.hosts):
	case j.inspection.over != nil:
		j.inspectedAll()
	default:
		j.judgeStalls()
	}
}

// judgeStalls prints what is new after a round of answers.
func (j *job) judgeStalls() {
	s := &j.stalls
	s.asking, s.timeout = false, nil
	lines, giveUp := s.reports.Judge(time.Now(), s.answers)
	for _, line := range lines {
		j.spec.Note("gorun: stall: %s", line)
	}
	if giveUp != nil {
		j.hosts.broadcast(giveUp)
	} else if s.again {
		s.ask(j.hosts)
	}
}
