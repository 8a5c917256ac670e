package launcher

import (
	"fmt"
	"strings"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/why"
	"gorun/rendezvous/wire"
)

// inspectTime is how long daemons have to report what their ranks do.
const inspectTime = 2 * time.Second

// inspect asks every daemon what its ranks do, and which operations wait, as for a stall. A round that is under way ends
// without an answer.
func (j *job) inspect(stacks bool, then func()) {
	if j.stopping {
		return
	}
	j.inspection = inspection{over: time.After(inspectTime), found: map[int]*wire.Inspected{}, then: then}
	j.hosts.broadcast(&wire.Inspect{Stacks: stacks})
	j.stalls.ask(j.hosts)
	j.stalls.timeout = nil // inspection.over is
	if j.hosts.running() == 0 {
		j.inspectionOver()
	}
}

// inspected takes the answer of a daemon.
func (j *job) inspected(h *host, m *wire.Inspected) {
	if j.inspection.over != nil {
		j.inspection.found[h.id] = m
		j.inspectedAll()
	}
}

// inspectedAll ends the round when nothing more is to come.
func (j *job) inspectedAll() {
	if n := j.hosts.running(); len(j.inspection.found) >= n && len(j.stalls.answers.By) >= n {
		j.inspectionOver()
	}
}

// inspectionOver ends the round with what was found by now.
func (j *job) inspectionOver() {
	j.inspection.over = nil
	j.inspection.then()
}

// findings returns what was found about each rank.
func (j *job) findings() []why.Finding {
	all := make([]why.Finding, 0, len(j.processes))
	for rank, p := range j.processes {
		all = append(all, j.inspection.finding(rank, p, j.hosts[p.host], j.stalls.answers))
	}
	return all
}

// answerWhy begins an inspection for a user who asks what the job waits for.
func (j *job) answerWhy() {
	if j.inspection.over != nil {
		return // its answer serves this user too
	}
	j.inspect(true, func() {
		j.spec.Inspected(j.findings())
		j.judgeStalls() // as the answers are there
	})
}

// timedOut ends the job with what was found by now.
func (j *job) timedOut() {
	e := &failure.TimeoutError{After: j.spec.Timeout}
	for _, f := range j.findings() {
		does := strings.Join(append([]string{f.State}, f.Does...), "; ")
		e.States = append(e.States, fmt.Sprintf("rank %d on %s: %s", f.Rank, f.Host, does))
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
	if len(lines) > 0 && giveUp == nil {
		j.hintAtWhy()
	}
	if giveUp != nil {
		j.hosts.broadcast(giveUp)
	} else if s.again {
		s.ask(j.hosts)
	}
}

// hintAtWhy names, once, the command that shows more of a stall.
func (j *job) hintAtWhy() {
	if j.stalls.hinted || j.spec.Number == nil {
		return
	}
	if number := j.spec.Number(); number != 0 {
		j.stalls.hinted = true
		j.spec.Note("gorun: hint: gorun why %d shows what they do", number)
	}
}
