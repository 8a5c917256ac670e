package launcher

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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
	j.broadcast(&wire.Inspect{})
	j.askStalled()
	j.stalls.timeout = nil // inspection.over is
	if j.running() == 0 {
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
	if n := j.running(); len(j.inspection.found) >= n && len(j.stalls.answers.by) >= n {
		j.timedOut()
	}
}

// timedOut ends the job with what was found by now.
func (j *job) timedOut() {
	j.inspection.over = nil
	e := &TimeoutError{After: j.spec.Timeout}
	for rank, p := range j.processes {
		id := p.host
		e.States = append(e.States, fmt.Sprintf("rank %d on %s: %s", rank, j.hosts[id].name, j.rankState(rank, id)))
	}
	j.stop(e)
}

// rankState describes what a rank does.
func (j *job) rankState(rank, id int) string {
	found := j.inspection.found[id]
	switch {
	case j.processes.at(rank).exited:
		return "has ended"
	case !j.hosts[id].up:
		return "its host was not reached"
	case !j.processes.at(rank).started:
		return "has not started"
	case found == nil:
		return "its host does not answer"
	}
	words := []string{"runs"}
	for _, s := range found.Ranks {
		if s.Process == rank {
			words[0] = s.State
		}
	}
	all := j.stalls.answers
	own := all.by[id]
	for _, op := range all.open() {
		missing := all.missingByHost(op.operation)
		since := ""
		if op.age >= time.Second { // less is not known: the clock runs from the first look
			since = fmt.Sprintf(", for %v or longer", op.age.Round(time.Second))
		}
		name := describeOperation(op.operation, op.kind)
		called := own != nil && slices.ContainsFunc(own.Ops, op.is)
		switch {
		case slices.Contains(missing[j.hosts[id].name], rank):
			words = append(words, fmt.Sprintf("has not called %s, which others wait for%s", name, since))
		case called && len(missing) == 0:
			words = append(words, fmt.Sprintf("in %s%s", name, since))
		case called:
			words = append(words, fmt.Sprintf("waits in %s for %s%s", name, all.missing(op.operation), since))
		}
	}
	return strings.Join(words, "; ")
}

// openOperation is one that is not finished on some host.
type openOperation struct {
	operation
	kind string
	age  time.Duration
}

func (o operation) is(w wire.Waiting) bool { return w.Group == o.group && w.Name == o.name }

// open returns the operations that are not finished on some host, the oldest first.
func (a answers) open() (open []openOperation) {
	for _, id := range slices.Sorted(maps.Keys(a.by)) {
		for _, w := range a.by[id].Ops {
			op := openOperation{operation{w.Group, w.Name}, w.Kind, time.Duration(w.AgeMS) * time.Millisecond}
			if i := slices.IndexFunc(open, func(o openOperation) bool { return o.operation == op.operation }); i >= 0 {
				open[i].age = max(open[i].age, op.age)
			} else {
				open = append(open, op)
			}
		}
	}
	slices.SortStableFunc(open, func(a, b openOperation) int { return cmp.Compare(b.age, a.age) })
	return open
}
