package web

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorun/launcher/jobs"
	"gorun/launcher/why"
	"gorun/topology"
)

// maxEvents is how many events a view keeps, the latest.
const maxEvents = 200

// View is what the page shows, as GET /api/state returns it. Counters grow from the start of the job: who wants rates
// subtracts an earlier view.
type View struct {
	Now    time.Time         `json:"now"`
	Job    JobView           `json:"job"`
	Hosts  []HostView        `json:"hosts"`
	Ranks  []jobs.RankStatus `json:"ranks"`
	Events []Event           `json:"events"`          // the oldest first
	Error  string            `json:"error,omitempty"` // why nothing newer is known

	last jobs.State
}

// JobView describes the job.
type JobView struct {
	ID        int       `json:"id"`
	Program   string    `json:"program"`
	Ranks     int       `json:"ranks"`
	Machine   string    `json:"machine"` // the launcher's host
	Started   time.Time `json:"started"`
	Epoch     uint32    `json:"epoch"`
	StoppedBy string    `json:"stopped_by,omitempty"`
}

// HostView describes a host.
type HostView struct {
	jobs.HostStatus
	Ranks       string    `json:"ranks"` // "0-3,8"
	SilentSince time.Time `json:"silent_since,omitzero"`
}

// Event is something that happened to the job.
type Event struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"` // epoch, silent, back, left, joined, link, started, ended, stopping, stall, move or moved
	Text string    `json:"text"`
}

// Answer is what a job waits for, as POST /api/why returns it.
type Answer struct {
	Verdict  string      `json:"verdict"`
	Evidence []string    `json:"evidence"`
	Stacks   []StackView `json:"stacks"`
}

// StackView is a stack that ranks have in common.
type StackView struct {
	Ranks  string   `json:"ranks"`
	Frames []string `json:"frames"` // the innermost first
}

func answerOf(all []why.Finding) Answer {
	a := Answer{Evidence: []string{}, Stacks: []StackView{}}
	verdict, evidence := why.Explain(all)
	a.Verdict = jobs.Clean(verdict)
	for _, line := range evidence {
		a.Evidence = append(a.Evidence, jobs.Clean(line))
	}
	for _, s := range why.Merge(all) {
		stack := StackView{Ranks: why.Numbers(s.Ranks)}
		for _, frame := range s.Frames {
			stack.Frames = append(stack.Frames, jobs.Clean(frame.String()))
		}
		a.Stacks = append(a.Stacks, stack)
	}
	return a
}

// next returns the view of a state that follows.
func (v View) next(s jobs.State, now time.Time) View {
	r := s.Record
	n := View{Now: now, last: s, Ranks: s.Ranks, Hosts: []HostView{},
		Job: JobView{ID: r.ID, Program: jobs.Clean(r.Program), Ranks: r.Ranks, Machine: r.Machine, Started: r.Started,
			Epoch: epochOf(s), StoppedBy: jobs.Clean(r.StoppedBy)}}
	if n.Ranks == nil {
		n.Ranks = []jobs.RankStatus{}
	}
	on := map[string][]int{}
	for _, rank := range s.Ranks {
		on[rank.Host] = append(on[rank.Host], rank.Rank)
	}
	for _, h := range s.Hosts {
		h.Each, h.Operations = nil, nil // the page does not show them, and there may be a thousand hosts
		n.Hosts = append(n.Hosts, HostView{h, why.Numbers(on[h.Name]), r.Silent[h.Name]})
	}
	n.Events = append(slices.Clone(v.Events), changes(v.last, s, now)...)
	for _, e := range s.Events[len(s.Events)-min(max(s.Happened-v.last.Happened, 0), len(s.Events)):] {
		n.Events = append(n.Events, Event{e.At, e.Kind, jobs.Clean(e.Text)})
	}
	n.Events = n.Events[max(len(n.Events)-maxEvents, 0):]
	if n.Events == nil {
		n.Events = []Event{}
	}
	return n
}

func epochOf(s jobs.State) (latest uint32) {
	for _, h := range s.Hosts {
		latest = max(latest, h.Epoch)
	}
	return latest
}

// changes returns what happened between two states.
func changes(before, after jobs.State, now time.Time) (events []Event) {
	note := func(at time.Time, kind, format string, args ...any) {
		events = append(events, Event{at, kind, fmt.Sprintf(format, args...)})
	}
	hostChanges(before, after, now, note)
	if e := epochOf(after); e > epochOf(before) {
		note(now, "epoch", "epoch %d begins, with %s on %s", e, topology.Count(after.Record.Ranks, "rank"), topology.Count(len(after.Hosts), "host"))
	}
	rankChanges(before.Ranks, after.Ranks, now, note)
	if r := after.Record; !r.Stopping.IsZero() && before.Record.Stopping.IsZero() {
		note(r.Stopping, "stopping", "the job is stopped by %s", jobs.Clean(r.StoppedBy))
	}
	return events
}

type noter func(at time.Time, kind, format string, args ...any)

func hostChanges(before, after jobs.State, now time.Time, note noter) {
	known := map[string]jobs.HostStatus{}
	for _, h := range before.Hosts {
		known[h.Name] = h
	}
	for _, h := range after.Hosts {
		old, was := known[h.Name]
		delete(known, h.Name)
		switch {
		case !was && len(before.Hosts) > 0:
			note(now, "joined", "%s has joined", h.Name)
		case was && h.Renewed > old.Renewed:
			note(now, "link", "%s has renewed connections: %d", h.Name, h.Renewed-old.Renewed)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		note(now, "left", "%s is not in the job any more", name)
	}
	was, is := before.Record.Silent, after.Record.Silent
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if _, already := was[name]; !already {
			note(is[name], "silent", "%s falls silent", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, still := is[name]; !still && slices.Contains(after.Record.Hosts, name) {
			note(now, "back", "%s is heard again", name)
		}
	}
	for _, p := range after.Record.Partitions {
		same := func(q jobs.Partition) bool { return q.Host == p.Host && q.To == p.To }
		if !slices.ContainsFunc(before.Record.Partitions, same) {
			note(p.Since, "silent", "%s falls silent to %s", p.Host, p.To)
		}
	}
}

// rankChanges notes which ranks start and end, equal ends together.
func rankChanges(before, after []jobs.RankStatus, now time.Time, note noter) {
	var started []int
	ended := map[string][]int{}
	for i, r := range after {
		var old jobs.RankStatus
		if i < len(before) {
			old = before[i]
		}
		switch {
		case r.Ended() && !old.Ended():
			ended[r.State] = append(ended[r.State], r.Rank)
		case r.PID != 0 && r.PID != old.PID && !r.Ended():
			started = append(started, r.Rank)
		}
	}
	if len(started) > 0 {
		note(now, "started", "%s started", ranks(started))
	}
	for _, state := range slices.Sorted(maps.Keys(ended)) {
		note(now, "ended", "%s %s", ranks(ended[state]), jobs.Clean(state))
	}
}

func ranks(numbers []int) string {
	text := "rank " + why.Numbers(numbers)
	if len(numbers) > 1 {
		text = strings.Replace(text, "rank", "ranks", 1)
	}
	return text
}
