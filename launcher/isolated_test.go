package launcher

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/launcher/talk"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// renewed is a daemon whose connection is renewed when it breaks.
func renewed(line liveness.Line, ended bool) *talk.Daemon {
	return &talk.Daemon{Away: func() liveness.Line { return line }, Ended: func() bool { return ended }}
}

// solitary is a job of three hosts with a lease of 10 s, which were last heard when it began.
func solitary(began time.Time, membership *membership) (j *job, notes *[]string) {
	notes = new([]string)
	note := func(format string, args ...any) { *notes = append(*notes, fmt.Sprintf(format, args...)) }
	j = &job{state: state{spec: &Spec{JobOptions: wire.JobOptions{Lease: 10 * time.Second}, Note: note}, membership: membership,
		alive: liveness.NewHosts(liveness.Default())}}
	membership.epoch = 1
	for id := range 3 {
		h := newHost(id, fmt.Sprintf("h%d", id), j.spec, wire.Job{})
		h.hangUp = func() {}
		h.Started(renewed(liveness.Line{}, false))
		h.Heard.Reading(began)
		j.hosts = append(j.hosts, h)
		h.up, h.ready, h.world = true, &wire.Ready{}, wire.World{Epoch: 1}
	}
	j.hosts[0].world.Order = []int{0, 1, 2}
	return j, notes
}

// pass lets time pass, as the loop of a job does.
func (j *job) pass(from, to time.Time) {
	for now := from; now.Before(to); now = now.Add(liveness.Default().LookInterval) {
		j.listen(now)
	}
}

// TestIsolated: one line reports that all hosts are silent, and none of them is given up, whatever others reported of
// it before, until they must have ended the job by themselves; if one is heard before, all have their lease again.
func TestIsolated(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(sec int) time.Time { return began.Add(time.Duration(sec) * time.Second) }
	const line = `gorun: this machine has heard from none of its 3 hosts since `
	lost := func(j *job) (names []string) {
		for _, h := range j.hosts {
			if h.evicted != nil || h.ended {
				names = append(names, h.name)
			}
		}
		return names
	}

	j, notes := solitary(began, fixedMembership(3))
	j.listen(began.Add(3 * time.Second))
	j.evidence(j.hosts[0], &wire.Evidence{Peer: 1, Suspicion: wire.LeaseOver})
	j.pass(began.Add(3*time.Second), at(29))
	if len(*notes) != 1 || !strings.HasPrefix((*notes)[0], line) || j.stopping || lost(j) != nil {
		t.Errorf("after 29 s it has told %q, stops: %v, and has given up %q", *notes, j.stopping, lost(j))
	}
	j.evidence(j.hosts[0], &wire.Evidence{Peer: 1})
	j.hosts[2].Heard.Reading(at(29))
	j.pass(at(29), at(32))
	if j.hosts[2].Heard.Reading(at(32)); j.stopping || lost(j) != nil {
		t.Errorf("one is heard again, and it stops: %v, and has given up %q", j.stopping, lost(j))
	}
	for s := 32; s < 50; s++ {
		j.hosts[2].Heard.Reading(at(s))
		j.pass(at(s), at(s+1))
	}
	if j.stopping || lost(j) != nil {
		t.Errorf("one is heard, which would say who is lost; it stops: %v, and has given up %q", j.stopping, lost(j))
	}

	j, notes = solitary(began, fixedMembership(3))
	j.pass(began, at(35))
	if j.stopping {
		t.Errorf("it does not outwait its hosts: %v", j.verdict)
	}
	j.pass(at(35), at(36))
	want := fmt.Sprintf("this machine has heard from none of its 3 hosts since %s; without it they end the job after 30s", began.Format(time.TimeOnly))
	if j.verdict == nil || j.verdict.Error() != want || len(lost(j)) != 3 || len(*notes) != 1 {
		t.Errorf("it ends because %v, want %s; it has told %q, and looks for all but %q", j.verdict, want, *notes, lost(j))
	}

	j, _ = solitary(time.Now().Add(-20*time.Second), fixedMembership(3)) // handle looks at the clock
	j.listen(time.Now())
	if j.handle(talk.Event{Host: 1, Err: &failure.HostError{Host: "h1", Err: errors.New("gone")}}); j.verdict == nil || j.verdict.Error() != "h1: : gone" {
		t.Errorf("it ends because %v although hosts wait for it still", j.verdict)
	}
	j, _ = solitary(time.Now().Add(-31*time.Second), fixedMembership(3))
	j.listen(time.Now())
	j.handle(talk.Event{Host: 1, Err: &failure.HostError{Host: "h1", Err: errors.New("it is not there any more")}})
	if _, ok := errors.AsType[*failure.IsolatedError](j.verdict); !ok {
		t.Errorf("a host has ended the job by itself, and it ends because %v", j.verdict)
	}
}

// TestIsolatedElastic: no other world begins while no one would hear of it; what happened meanwhile counts afterwards.
func TestIsolatedElastic(t *testing.T) {
	began := time.Now()
	j, notes := solitary(began, membershipOf(3, flexible))
	j.pass(began, began.Add(12*time.Second))
	j.decide(elastic.Discovered{})
	j.decide(elastic.Tick{})
	if len(j.membership.held) != 1 || len(j.hosts) != 3 || j.stopping || len(*notes) != 1 {
		t.Errorf("%d events wait, there are %d hosts, it stops: %v, and has told %q", len(j.membership.held), len(j.hosts), j.stopping, *notes)
	}
	j.hosts[0].Heard.Reading(began.Add(12 * time.Second))
	j.listen(began.Add(12 * time.Second))
	if j.decide(elastic.Tick{}); len(j.membership.held) != 0 || !j.alive.IsolatedSince().IsZero() {
		t.Errorf("it is alone since %v although a host is heard, and %d events wait", j.alive.IsolatedSince(), len(j.membership.held))
	}
}

// quiet is an Output of ranks that write nothing.
type quiet struct{}

func (quiet) Write(int, wire.OutputStream, []byte) {}
func (quiet) Close(int)                            {}
func (quiet) Tail(int) []string                    { return nil }
func (quiet) Hurry()                               {}

// TestStopped: a launcher that was stopped for longer than its hosts wait reports it, whichever consequence it hears
// first. What hosts did before is reported as always, and so is what follows Ctrl-Z.
func TestStopped(t *testing.T) {
	const code = 3
	crash := &wire.Exited{Process: 0, Code: code}
	consequence := &wire.Exited{Process: 0, Code: 1, Deaf: true}
	gone := &failure.HostError{Host: "h0", Err: errors.New("gone")}
	for name, tc := range map[string]struct {
		spoke, stopped, woke time.Duration // ago
		event                talk.Event
		alone                bool
	}{
		"its host is gone":             {spoke: 45 * time.Second, event: talk.Event{Err: gone}, alone: true},
		"a rank fails because of it":   {spoke: 45 * time.Second, event: talk.Event{Msg: consequence}, alone: true},
		"a peer is lost":               {spoke: 45 * time.Second, event: talk.Event{Msg: &wire.Failed{Peer: 1}}, alone: true},
		"a rank had failed before":     {spoke: 45 * time.Second, event: talk.Event{Msg: crash}},
		"not for long enough":          {spoke: 25 * time.Second, event: talk.Event{Err: gone}},
		"by Ctrl-Z":                    {spoke: time.Hour, stopped: time.Hour, event: talk.Event{Err: gone}},
		"by Ctrl-Z, and woken":         {spoke: time.Hour, stopped: time.Hour, woke: time.Second, event: talk.Event{Err: gone}},
		"by Ctrl-Z once, and now kill": {spoke: 45 * time.Second, stopped: time.Hour, woke: 50 * time.Minute, event: talk.Event{Err: gone}, alone: true},
	} {
		now := time.Now()
		j, _ := solitary(now, fixedMembership(3))
		j.processes, j.spec.Output = processes{{host: 0}, {host: 1}, {host: 2}}, quiet{}
		j.hosts[0].Spoken.Note(now.Add(-tc.spoke))
		if tc.stopped > 0 {
			j.asleep.signalled(int(syscall.SIGTSTP), now.Add(-tc.stopped))
		}
		if tc.woke > 0 {
			j.asleep.signalled(int(syscall.SIGCONT), now.Add(-tc.woke))
		}
		j.asleep.signalled(int(syscall.SIGCONT), now) // the end of any stop
		if tc.stopped > 0 && tc.woke == 0 {
			j.asleep.signalled(int(syscall.SIGTSTP), now)
		}
		j.handle(tc.event)
		e, alone := errors.AsType[*failure.IsolatedError](j.verdict)
		if alone != tc.alone || alone && e.Stopped.Round(time.Second) != tc.spoke {
			t.Errorf("%s: it ends because %v", name, j.verdict)
		}
	}
}
