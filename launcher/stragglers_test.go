package launcher

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/talk"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// TestStragglers: at the end of a job users hear for which hosts it waits, and where ranks may be left.
func TestStragglers(t *testing.T) {
	began := time.Unix(1000, 0)
	now := began.Add(10 * time.Second)
	const hint = "gorun: hint: they end soon after the host goes on, or is connected again: there, pgrep -af 'gorun worker' shows whether they have"
	given := func(j *job, hungUp bool) {
		broken := now.Add(-5 * time.Second)
		j.hosts[0].Started(renewed(liveness.Line{Broken: broken, Unanswered: broken, HungUp: hungUp}, false))
		j.stopping = true
		j.act(j.alive.Look(now, j.view(now)))
		j.handle(talk.Event{Host: 0, Err: &failure.HostError{}})
	}
	for name, tc := range map[string]struct {
		change         func(j *job)
		waiting, ended []string
	}{
		"all have ended": {change: func(j *job) { j.hosts[0].up, j.hosts[1].up = false, false }},
		"one is silent": {change: func(j *job) { j.hosts[1].ended = true }, waiting: []string{"gorun: waiting for host0, silent for 7 s"},
			ended: []string{"gorun: host0 did not answer: ranks may still run there", hint}},
		"its rank had ended": {change: func(j *job) { j.hosts[1].ended, j.processes[0].exited = true, true }, waiting: []string{"gorun: waiting for host0, silent for 7 s"}},
		"it had no rank yet": {change: func(j *job) { j.hosts[1].ended = true; j.hosts[0].ready = nil }, waiting: []string{"gorun: waiting for host0, silent for 7 s"}},
		"one is slow":        {change: func(j *job) { j.hosts[0].ended = true }, waiting: []string{"gorun: waiting for host1, where ranks have not ended"}},
		"both": {change: func(*job) {}, waiting: []string{"gorun: waiting for host0, silent for 7 s", "gorun: waiting for host1, where ranks have not ended"},
			ended: []string{"gorun: host0 did not answer: ranks may still run there", hint}},
		"this machine stood still": {change: func(j *job) { j.hosts[1].ended = true; j.alive.Begin(now) }, waiting: []string{"gorun: waiting for host0, where ranks have not ended"}},
		"one was given up": {change: func(j *job) { j.hosts[1].ended = true; given(j, false) },
			ended: []string{"gorun: host0 did not answer: ranks may still run there", hint}},
		"one was given up that hung up": {change: func(j *job) { j.hosts[1].ended = true; given(j, true) }},
		"one was given up that hung up on another": {change: func(j *job) {
			j.hosts[1].ended = true
			j.alive.Report(now, 1, wire.Evidence{Peer: 0, HungUp: true})
			given(j, false)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var said []string
			j := &job{state: state{membership: fixedMembership(2), spec: &Spec{Note: func(f string, args ...any) { said = append(said, fmt.Sprintf(f, args...)) }},
				processes: processes{{host: 0}, {host: 1}}, verdict: failure.ErrStopped, alive: liveness.NewHosts(liveness.Default())}}
			for id := range 2 {
				h := &host{id: id, name: fmt.Sprint("host", id), hangUp: func() {}, up: true, ready: &wire.Ready{}}
				h.Own([]wire.Rank{{Process: id}})
				j.hosts = append(j.hosts, h)
			}
			j.hosts[0].Heard.Reading(began.Add(3 * time.Second))
			j.hosts[1].Heard.Reading(now)
			tc.change(j)
			j.tellStragglers(now)
			if !slices.Equal(said, tc.waiting) {
				t.Errorf("while it waits: %q, want %q", said, tc.waiting)
			}
			said = nil
			j.tellLeft(now)
			if !slices.Equal(said, tc.ended) {
				t.Errorf("at the end: %q, want %q", said, tc.ended)
			}
		})
	}
	if got := someOf([]string{"a", "b", "c", "d", "e"}); got != "a, b, c and 2 more" {
		t.Error(got)
	}
	if got := someOf([]string{"a", "b", "c", "d"}); got != "a, b, c, d" {
		t.Error(got)
	}
}
