package launcher

import (
	"fmt"
	"time"

	"gorun/launcher/failure"
	"gorun/rendezvous/wire"
)

// inspectTime is how long daemons have to report what their ranks do.
const inspectTime = 2 * time.Second

// inspect begins the end of a job that takes too long: every daemon is asked what its ranks do, and what operations
// wait for as for a stall.
func (j *job) inspect() {
	if j.stopping {
		return
	}
	j.inspection = inspection{over: time.After(inspectTime), found: map[int]*wire.Inspected{}}
	j.hosts.broadcast(&wire.Inspect{})
	j.stalls.ask(j.hosts)
	j.stalls.timeout = nil // inspection.over is
	if j.hosts.running() == 0 {
		j.timedOut()
	}
}

// inspected takes the answer of a daemon.
func (j *job) inspected(h *host, m *wire.Inspected) {
	if j.inspection.over != nil {
		j.inspection.found[h.id] = m
		j.inspectedAll()
	}
}

// inspectedAll ends the job when nothing more is to come.
func (j *job) inspectedAll() {
	if n := j.hosts.running(); len(j.inspection.found) >= n && len(j.stalls.answers.By) >= n {
		j.timedOut()
	}
}

// timedOut ends the job with what was found by now.
func (j *job) timedOut() {
	j.inspection.over = nil
	e := &failure.TimeoutError{After: j.spec.Timeout}
	for rank, p := range j.processes {
		h := j.hosts[p.host]
		does := j.inspection.state(rank, p, h, j.stalls.answers)
		e.States = append(e.States, fmt.Sprintf("rank %d on %s: %s", rank, h.name, does))
	}
	j.stop(e)
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
