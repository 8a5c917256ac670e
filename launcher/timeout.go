package launcher

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/why"
	"gorun/rendezvous/wire"
)

const (
	// inspectTime bounds the daemons' reports of what their ranks do, over a path that loses packets too.
	inspectTime = 4 * time.Second
	// nativeTime is how much longer they have if tools of their hosts are to read the ranks, which get 20 s for it.
	nativeTime = 21 * time.Second
)

// inspect asks every daemon what its ranks do, and which operations wait, as for a stall. A round that is under way ends
// without an answer.
func (j *job) inspect(how wire.Inspect, then func()) {
	if j.stopping {
		return
	}
	limit := inspectTime
	if how.Native {
		limit += nativeTime
	}
	j.inspection = inspection{how: how, over: time.After(limit), asked: time.Now(), found: map[int]*wire.Inspected{}, then: then,
		flights: map[int]arrived{}, ahead: map[int]int64{}}
	j.hosts.broadcast(&how)
	j.hosts.broadcast(&wire.AskFlight{Most: j.hosts.share()})
	j.stalls.ask(j.hosts)
	j.stalls.timeout = nil // inspection.over limits the round
	if j.hosts.running() == 0 {
		j.inspectionOver()
	}
}

// inspected takes the answer of a daemon.
func (j *job) inspected(h *host, m *wire.Inspected) {
	if j.inspection.over != nil {
		j.inspection.found[h.id] = m
		j.inspection.ahead[h.id] = j.inspection.aheadOf(m.Now)
		j.inspectedAll()
	}
}

// inspectedAll ends the round when nothing more is to come.
func (j *job) inspectedAll() {
	i, n := &j.inspection, j.hosts.running()
	if len(i.found) >= n && len(j.stalls.answers.By) >= n && len(i.flights) >= n {
		j.inspectionOver()
	}
}

// inspectionOver ends the round with what was found by now.
func (j *job) inspectionOver() {
	j.inspection.over = nil
	j.inspection.then()
	j.answerWhys()
}

// findings returns what was found about each rank.
func (j *job) findings() []why.Finding {
	ops, _, _ := j.inspection.record(j.hosts)
	patience := why.Patience(ops)
	all := make([]why.Finding, 0, len(j.processes))
	for rank, p := range j.processes {
		all = append(all, j.inspection.finding(rank, p, j.hosts[p.host], j.stalls.answers, patience))
	}
	why.Learn(all, ops)
	j.inspection.last = all
	return all
}

// Why is the question of a user what the job waits for.
type Why struct {
	Native bool                 // with the functions of C that ranks are in
	Answer chan<- []why.Finding // has room for one
}

// lookForWhys begins an inspection for users who ask what the job waits for, unless one is under way.
func (j *job) lookForWhys() {
	if len(j.whys) == 0 || j.inspection.over != nil {
		return
	}
	native := slices.ContainsFunc(j.whys, func(w Why) bool { return w.Native })
	j.inspect(wire.Inspect{Stacks: true, Native: native}, func() {
		j.keep("gorun why", j.findings(), nil)
		j.judgeStalls() // as the answers are there
	})
}

// answerWhys answers the users who wait for what an inspection has found. Another one begins for those who want more.
func (j *job) answerWhys() {
	how := j.inspection.how
	j.whys = slices.DeleteFunc(j.whys, func(w Why) bool {
		answered := how.Stacks && (how.Native || !w.Native)
		if answered {
			w.Answer <- j.inspection.last
		}
		return answered
	})
	j.lookForWhys()
}

// timedOut ends the job with what was found by now.
func (j *job) timedOut() {
	found := j.findings()
	var states []string
	for _, f := range found {
		does := strings.Join(append([]string{f.State}, f.Does...), "; ")
		states = append(states, fmt.Sprintf("rank %d on %s: %s", f.Rank, f.Host, does))
	}
	e := failure.Timeout(j.spec.Timeout, states)
	j.keep("the time limit", found, e)
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
		j.hintAtWhy(&j.stalls.hinted)
	}
	if giveUp == nil && s.toRecord(time.Now()) {
		j.record("a stall", true)
	}
	if giveUp != nil {
		j.hosts.broadcast(giveUp)
	} else if s.again {
		s.ask(j.hosts)
	}
}

// hintAtWhy names the command that shows more, once each for stalls and lags.
func (j *job) hintAtWhy(hinted *bool) {
	if *hinted || j.spec.Number == nil {
		return
	}
	if number := j.spec.Number(); number != 0 {
		*hinted = true
		j.spec.Note("gorun: hint: gorun why %d shows more", number)
	}
}

// flown takes what a daemon's flight recorder has, or its request for a recording.
func (j *job) flown(h *host, m *wire.Flight) {
	if m.Wanted != "" {
		j.record(m.Wanted+" on "+h.name, true)
		return
	}
	if j.inspection.flights == nil {
		j.inspection.flights = map[int]arrived{}
	}
	j.inspection.flights[h.id] = arrived{m, j.inspection.aheadOf(m.Now)}
	if j.inspection.over != nil {
		j.inspectedAll()
	}
}

// record gathers what the flight recorders of all hosts have, and keeps it with what the ranks do. With stacks it asks
// ranks for their stacks too, which disturbs them if they run: only for ranks that hang, or if the user wants a
// recording.
func (j *job) record(reason string, stacks bool) {
	if j.spec.Record == nil || j.inspection.over != nil {
		return // an inspection under way keeps what it finds, too
	}
	j.inspect(wire.Inspect{Stacks: stacks}, func() {
		j.keep(reason, j.findings(), nil)
		j.judgeStalls()
	})
}

// keep hands a recording over.
func (j *job) keep(reason string, found []why.Finding, failed error) {
	if j.spec.Record == nil {
		return
	}
	r := &why.Recording{Head: why.Head{Reason: reason, Time: time.Now().UnixMicro(), Hosts: j.hosts.names(), Ranks: len(j.processes)}, Found: found}
	if r.Ops, r.Links, r.Sums = j.inspection.record(j.hosts); len(r.Ops) == 0 {
		return
	}
	if failed != nil {
		r.Head.Error = failed.Error()
	}
	j.spec.Record(r)
}

// recordFailure keeps what daemons sent before a failed job ended.
func (j *job) recordFailure(err error) {
	if recordable(err) && j.started() {
		j.keep("the job failed", j.endings(), err)
	}
}

// started reports whether ranks have been in a world.
func (j *job) started() bool {
	return slices.ContainsFunc(j.processes, func(p process) bool { return p.started || p.exited })
}

// endings are what was found out about the ranks last, with how they ended.
func (j *job) endings() []why.Finding {
	all := slices.Clone(j.inspection.last)
	for rank, p := range j.processes {
		i := slices.IndexFunc(all, func(f why.Finding) bool { return f.Rank == rank })
		if i < 0 {
			all = append(all, why.Finding{Rank: rank, Host: j.hosts[p.host].name, State: "runs"})
			i = len(all) - 1
		}
		if f := p.failure; f != nil {
			f.Tail = j.spec.Output.Tail(rank)
			all[i].Failed, all[i].Ended = f.Error(), true
			if why := f.Cause(); why != "" && !strings.Contains(all[i].Failed, ": ") {
				all[i].Failed += ": " + why
			}
		}
	}
	return all
}
