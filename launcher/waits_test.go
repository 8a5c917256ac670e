package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/launcher/plan"
	"gorun/launcher/talk"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// TestStartWaits: that a host cannot join others is not its failure while one of those is silent, and it goes on
// trying.
func TestStartWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		quiet   time.Duration // of b, which a does not reach
		again   bool
		change  func(j *job)
		ignored bool
	}{
		"the other one is silent":   {quiet: time.Minute, again: true, ignored: true},
		"the other one is there":    {again: true},
		"it does not go on":         {quiet: time.Minute},
		"the other one is given up": {quiet: time.Minute, again: true, change: func(j *job) { j.hosts[1].ended = true }},
		"the other one cannot be reached": {again: true, ignored: true, change: func(j *job) {
			j.hosts[1].Started(renewed(liveness.Line{Broken: time.Now()}, false))
		}},
		"the other one has been silent while it tried": {again: true, ignored: true, change: func(j *job) {
			j.hosts[1].Heard.Reading(time.Now().Add(-time.Minute))
			j.listen(time.Now())
			j.hosts[1].Heard.Reading(time.Now())
		}},
		"it has been silent itself": {again: true, ignored: true, change: func(j *job) {
			j.hosts[0].Heard.Reading(time.Now().Add(-liveness.Default().StragglerAfter))
			j.listen(time.Now())
			j.hosts[0].Heard.Reading(time.Now())
		}},
		"the other one was silent long before": {again: true, change: func(j *job) { wasMissing(j, 1, liveness.Default().RejoinGrace) }},
		"the job has started":                  {quiet: time.Minute, again: true, change: func(j *job) { j.membership = fixedMembership(2) }},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			j := &job{state: state{spec: &Spec{JobOptions: wire.JobOptions{Lease: time.Hour}, Note: func(string, ...any) {}},
				membership: membershipOf(2, elastic.Fixed(2)), processes: processes{{host: 0}, {host: 1}}, alive: liveness.NewHosts(liveness.Default())}}
			addTwoHosts(j, now, tc.quiet)
			if tc.change != nil {
				tc.change(j)
			}
			if got := j.waitsForSilent(time.Now(), &wire.Failed{Step: "join", Again: tc.again}); got != tc.ignored {
				t.Errorf("ignored %v, want %v", got, tc.ignored)
			}
		})
	}
}

// TestStartTimeoutNamesSilentHost: when a start has taken too long, the host that is silent is named, and not those
// that could not join it.
func TestStartTimeoutNamesSilentHost(t *testing.T) {
	j := &job{state: state{spec: &Spec{StartTimeout: time.Minute},
		membership: membershipOf(2, elastic.Fixed(2)), processes: processes{{host: 0}, {host: 1}}, alive: liveness.NewHosts(liveness.Default())}}
	for id, name := range []string{"a", "b"} {
		h := newHost(id, name, j.spec, wire.Job{})
		h.Started(renewed(liveness.Line{}, false))
		h.Heard.Reading(time.Now().Add(time.Duration(-id) * time.Minute))
		h.up, h.ready = true, &wire.Ready{}
		j.hosts = append(j.hosts, h)
	}
	j.startLate()
	e, _ := j.verdict.(*failure.HostError)
	if e == nil || e.Error() != "b: run: silent for 60 s" || e.Hint != "is the host up? A virtual machine that is paused has --lease to be back" {
		t.Errorf("verdict %v", j.verdict)
	}
}

// TestStartIsSuspended: a start that takes too long does not end before the lease of a host that is silent, nor at once
// when that one is back; but not later than a lease after it should have ended.
func TestStartIsSuspended(t *testing.T) {
	const lease = 30 * time.Second
	for name, tc := range map[string]struct {
		quiet, absent time.Duration // of b: for how long it is silent, and since when it is no more
		late          time.Duration // since when the start has taken too long
		ended         bool
	}{
		"its lease is not over":       {quiet: lease - time.Second},
		"its lease is over":           {quiet: lease, ended: true},
		"it is there":                 {absent: time.Hour, ended: true},
		"it was silent until now":     {absent: time.Second},
		"it was silent some time ago": {absent: liveness.Default().RejoinGrace, ended: true},
		"it was silent all too often": {absent: time.Second, late: lease + liveness.Default().RejoinGrace, ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			j := &job{state: state{spec: &Spec{StartTimeout: time.Minute},
				processes:  processes{{host: 0}, {host: 1}},
				membership: membershipOf(2, elastic.Fixed(2)), alive: liveness.NewHosts(liveness.Default())}}
			addTwoHosts(j, now, tc.quiet)
			for _, h := range j.hosts {
				h.up, h.world = true, wire.World{Epoch: 1}
			}
			j.hosts[1].Own([]wire.Rank{{Process: 1}})
			if tc.absent > 0 {
				wasMissing(j, 1, tc.absent)
			}
			if tc.late > 0 {
				j.late = now.Add(-tc.late)
			}
			if j.startLate(); j.stopping != tc.ended {
				t.Errorf("ended %v, want %v: %v", j.stopping, tc.ended, j.verdict)
			}
		})
	}
}

// TestStartBlamesNoBrokenLine: a host whose connection has just ended is not taken for why a start failed, neither when
// it has taken too long nor when another one fails.
func TestStartBlamesNoBrokenLine(t *testing.T) {
	for name, tc := range map[string]struct {
		fails func(j *job)
		want  string
	}{
		"a start takes too long": {func(j *job) { j.late = time.Now().Add(-time.Hour); j.startLate() }, "a: start ranks: not all of its ranks run after 1m0s"},
		"a host fails": {func(j *job) {
			j.evict(j.hosts[0], &failure.HostError{Host: "a", Step: "probe", Err: errors.New("no memory")}, eviction{own: true})
		}, "a: probe: no memory"},
	} {
		j := &job{state: state{spec: &Spec{StartTimeout: time.Minute},
			processes: processes{{host: 0}, {host: 1, started: true}}, alive: liveness.NewHosts(liveness.Default()),
			membership: membershipOf(2, elastic.Fixed(2), elastic.Started{Process: 1})}}
		for id, name := range []string{"a", "b"} {
			h := newHost(id, name, j.spec, wire.Job{})
			var broken liveness.Line
			if id == 1 {
				broken.Broken = time.Now()
			}
			h.Started(renewed(broken, false))
			h.Heard.Reading(time.Now().Add(-time.Second))
			h.Own([]wire.Rank{{Process: id}})
			h.up, h.ready, h.world = true, &wire.Ready{}, wire.World{Epoch: 1}
			j.hosts = append(j.hosts, h)
		}
		tc.fails(j)
		if j.verdict == nil || j.verdict.Error() != tc.want {
			t.Errorf("%s: verdict %v, want %s", name, j.verdict, tc.want)
		}
	}
}

// TestStartNamesWhomItWaitsFor: not at once, and not hosts that have failed.
func TestStartNamesWhomItWaitsFor(t *testing.T) {
	began := time.Unix(1000, 0)
	j := &job{state: state{spec: &Spec{}, began: began}}
	for id, name := range []string{"a", "b", "c"} {
		j.hosts = append(j.hosts, &host{id: id, name: name})
	}
	j.hosts[0].ready = &wire.Ready{}
	j.hosts[2].failure = &failure.HostError{Host: "c"}
	if got := j.awaited(began.Add(liveness.Default().StartNoticeAfter - 1)); got != "" {
		t.Errorf("at once it waits for %q", got)
	}
	if got := j.awaited(began.Add(liveness.Default().StartNoticeAfter)); got != "b" {
		t.Errorf("it waits for %q, want b", got)
	}
}

// addTwoHosts gives j hosts a, which has just been heard, and b, which has been quiet for so long.
func addTwoHosts(j *job, now time.Time, quiet time.Duration) {
	for id, name := range []string{"a", "b"} {
		h := newHost(id, name, j.spec, wire.Job{})
		h.Started(renewed(liveness.Line{}, false))
		h.Heard.Reading(now)
		h.ready = &wire.Ready{}
		j.hosts = append(j.hosts, h)
	}
	j.hosts[1].Heard.Reading(now.Add(-quiet))
}

// TestCutOff: when a start is cut off, the error names hosts that have failed, and none that is only cut off with it.
func TestCutOff(t *testing.T) {
	var notes []string
	j, err := newJob(&Spec{Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) },
		Placement: plan.Placement{Hosts: []plan.PlacedHost{{Name: "a", Ranks: []int{0}}, {Name: "b", Ranks: []int{1}}}, Ranks: make([]plan.PlacedRank, 2)}})
	must.Do(t, err)
	defer j.membership.tick.Stop()
	j.membership.policy.Step(0, elastic.Discovered{Hosts: j.membership.first})
	j.addHost("a")
	j.addHost("b")
	j.handle(talk.Event{Host: 0, Err: &failure.HostError{Host: "a", Step: "resolve", Err: errors.New("unknown")}})
	j.cutOff(failure.ErrInterrupted)
	j.handle(talk.Event{Host: 1, Err: &failure.HostError{Host: "b", Step: "handshake", Err: context.Canceled}})
	j.cutOff(failure.ErrStopped)
	if want := []string{"gorun: a: resolve: unknown"}; !slices.Equal(notes, want) || !errors.Is(j.verdict, failure.ErrInterrupted) || len(j.hosts) != 2 || !j.hosts.allEnded() {
		t.Errorf("notes %q, verdict %v, all of %d hosts have ended: %v; want %q", notes, j.verdict, len(j.hosts), j.hosts.allEnded(), want)
	}
}

// wasMissing has it that a host was last missing so long ago, and has been heard since then.
func wasMissing(j *job, id int, ago time.Duration) {
	now := time.Now()
	c := j.contact(now, j.hosts[id])
	c.Heard = now.Add(-ago - time.Minute)
	j.alive.Returning(now.Add(-ago), c)
}
