package launcher

import (
	"fmt"
	"strings"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/stall"
	"gorun/rendezvous/wire"
)

// inspectTime is how long daemons have to report what their ranks do.
const inspectTime = 2 * time.Second

// inspection is what the daemons of a job that takes too long report.
type inspection struct {
	over  <-chan time.Time // when the job no longer waits for them; nil while it does not
	found map[int]*wire.Inspected
}

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
		e.States = append(e.States, fmt.Sprintf("rank %d on %s: %s", rank, h.name, j.inspection.state(rank, p, h, j.stalls.answers)))
	}
	j.stop(e)
}

// state describes what a rank of a host does.
func (i *inspection) state(rank int, p process, h *host, all stall.Answers) string {
	found := i.found[h.id]
	switch {
	case p.exited:
		return "has ended"
	case !h.up:
		return "its host was not reached"
	case !p.started:
		return "has not started"
	case found == nil:
		return "its host does not answer"
	}
	does := "runs"
	for _, s := range found.Ranks {
		if s.Process == rank {
			does = s.State
		}
	}
	return strings.Join(append([]string{does}, all.Of(rank, h.id)...), "; ")
}
