package launcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/launcher/talk"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// watched is a job of three hosts in one world, all heard a moment ago, with the lines for its user.
func watched(t *testing.T, policy elastic.Policy) (j *job, told func() string) {
	var lines []string
	j = &job{state: state{alive: liveness.NewHosts(liveness.Default()), membership: membershipOf(3, policy)}}
	j.membership.epoch = 5
	j.spec = &Spec{Note: func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) },
		WatchHosts: func(e HostEvent) { lines = append(lines, fmt.Sprintf("%s %s to %q", e.Host, e.State, e.To)) }}
	for id := range 3 {
		h := newHost(id, fmt.Sprint("h", id), j.spec, wire.Job{})
		h.hangUp = func() { lines = append(lines, h.name+" hung up on") }
		h.Started(renewed(liveness.Line{}, false))
		h.Heard.Has(time.Now())
		j.hosts = append(j.hosts, h)
		h.up, h.ready, h.world = true, &wire.Ready{}, wire.World{Epoch: 4}
	}
	j.hosts[0].world.Order = []int{0, 1, 2}
	return j, func() string { return strings.Join(lines, "; ") }
}

// TestEvict: a host that a peer does not hear, and the launcher neither, is evicted, and the user reads why.
func TestEvict(t *testing.T) {
	j, told := watched(t, flexible)
	j.hosts[1].Heard.Reading(time.Now().Add(-4 * time.Second))
	j.handle(talk.Event{Host: 0, Msg: &wire.Evidence{Peer: 1, Suspicion: wire.LeaseOver}})
	h := j.hosts[1]
	if h.evicted == nil || h.evicted.why != "silent for 30s, as h0 reports" || h.evicted.alive || h.evicted.own || !strings.Contains(told(), "h1 hung up on") {
		t.Errorf("evicted: %+v; %s", h.evicted, told())
	}
	if want := "h1 hung up on; gorun: h1 is lost: silent for 30s, as h0 reports; h1 lost to"; !strings.Contains(told(), want) {
		t.Errorf("%s, want %s", told(), want)
	}
	before := told()
	j.handle(talk.Event{Host: 1, Err: &failure.HostError{Host: "h1", Step: "run", Err: fmt.Errorf("the connection ended")}})
	j.handle(talk.Event{Host: 1, Msg: &wire.Started{}})
	j.handle(talk.Event{Host: 2, From: &talk.Conversation{}, Err: &failure.HostError{Host: "h2", Step: "run", Err: fmt.Errorf("of a former host")}})
	if told() != before || j.hosts[2].ended {
		t.Errorf("what conversations bring that are over counts: %s", told())
	}
	for _, tc := range []struct {
		e    liveness.Evict
		want string
	}{
		{liveness.Evict{Cause: liveness.Unreached, By: 2, Lease: 6 * time.Second}, "h2 has not reached it for 6s: check firewalls between hosts"},
		{liveness.Evict{Cause: liveness.CutOff, From: []int{0, 2}}, "cut off from 2 hosts: h0, h2"},
		{liveness.Evict{Cause: liveness.NotHeard, Lease: 30 * time.Second}, "silent for 30s"},
		{liveness.Evict{Cause: liveness.NoContact, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)}, "could not be reached since 03:04:05"},
	} {
		if got := j.whyEvicted(tc.e); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// TestEvictedWhileItEnds: a host that cannot be reached while the job ends may run on; one that asked for its end is
// hung up on when it does not answer either.
func TestEvictedWhileItEnds(t *testing.T) {
	j, told := watched(t, elastic.Fixed(3))
	j.evict(j.hosts[0], &failure.HostError{Host: "h0", Err: fmt.Errorf("no memory")}, eviction{own: true})
	if j.hosts[0].evicted == nil || strings.Contains(told(), "hung up") {
		t.Errorf("its own word: %+v; %s", j.hosts[0].evicted, told())
	}
	j.stopping = true
	since := time.Now().Add(-2 * time.Second)
	for _, h := range j.hosts[:2] {
		h.Started(renewed(liveness.Line{Broken: since, Unanswered: since}, false))
	}
	j.listen(time.Now())
	for _, h := range j.hosts {
		if lost := h.evicted != nil; lost != (h.id < 2) || lost && (!h.evicted.mayLive || !strings.Contains(told(), h.name+" hung up on")) {
			t.Errorf("%s: %+v; %s", h.name, h.evicted, told())
		}
	}
}

// TestTellSilence: what users read of a host that is silent and back, also while it moves.
func TestTellSilence(t *testing.T) {
	j, told := watched(t, flexible)
	now := time.Now()
	j.migrating(j.hosts[1], &wire.Migrating{State: wire.MoveStarts})
	for _, h := range j.hosts[:2] {
		h.Heard.Reading(now.Add(-7 * time.Second))
	}
	j.listen(now)
	for _, h := range j.hosts[:2] {
		h.Heard.Reading(now)
	}
	j.listen(now)
	const want = `h0 silent to ""; gorun: h0 has been silent for 7 s; h1 silent to ""; gorun: h1 has been silent for 7 s, while it moves; ` +
		`h0 back to ""; gorun: h0 is back after 7 s; h1 back to ""; gorun: h1 is back after 7 s, while it moves`
	if told() != want {
		t.Errorf("%s\nwant\n%s", told(), want)
	}
}

// TestTellPaths: what users read of two hosts that do not hear each other, and of hosts that a world waits for.
func TestTellPaths(t *testing.T) {
	j, told := watched(t, flexible)
	for _, ms := range []int64{5000, 0} {
		j.handle(talk.Event{Host: 1, Msg: &wire.Evidence{Peer: 2, UnansweredMS: ms}})
		j.listen(time.Now())
	}
	j.handle(talk.Event{Host: 1, Msg: &wire.Evidence{Peer: 9, UnansweredMS: 5000}})
	for range 2 {
		j.handle(talk.Event{Host: 1, Msg: &wire.Evidence{Peer: 0, Epoch: 5, AwaitedMS: 4200}})
	}
	const want = `gorun: h2 has been silent to h1 for 5 s, although both are heard here: look at the network between them; h2 silent to "h1"; ` +
		`gorun: h1 hears h2 again after 5 s; h2 back to "h1"; gorun: epoch 5 has waited for h0 for 4 s: it and h1 do not reach each other`
	if told() != want {
		t.Errorf("%s\nwant\n%s", told(), want)
	}
}

// TestOutOfReachBeforeWorld: that a connection has ended is a reason to form a world which would be formed later: in
// one, hosts report to each other whether the launcher lives.
func TestOutOfReachBeforeWorld(t *testing.T) {
	j, _ := watched(t, flexible)
	j.membership = laterMembership(3)
	if !j.membership.policy.Later() {
		t.Fatal("the ranks wait for the world")
	}
	forms := func() (n int) {
		for _, h := range j.hosts {
			msgs, _ := h.Queue.Take()
			for _, m := range msgs {
				if _, ok := m.(*wire.Form); ok {
					n++
				}
			}
		}
		return n
	}
	now := time.Now()
	if j.listen(now); forms() != 0 {
		t.Error("a world is formed although all connections are there")
	}
	j.hosts[1].Started(renewed(liveness.Line{Broken: now}, false))
	if j.listen(now); forms() != 3 {
		t.Error("no world is formed")
	}
	if j.listen(now); forms() != 0 {
		t.Error("a world is formed twice")
	}
}

func TestLease(t *testing.T) {
	j := &job{state: state{spec: &Spec{}, hosts: []*host{{ready: &wire.Ready{}}, {ready: &wire.Ready{Host: topology.Host{GPUs: []topology.GPU{{Mode: "passthrough"}}}}}}}}
	if got := j.lease(); got != 30*time.Second {
		t.Errorf("lease %v", got)
	}
	j.hosts[0].ready.Host.GPUs = []topology.GPU{{Mode: "vgpu"}}
	if got := j.lease(); got != 120*time.Second {
		t.Errorf("lease %v with a vGPU", got)
	}
	j.spec.Lease = 7 * time.Second
	if got := j.lease(); got != 7*time.Second {
		t.Errorf("lease %v, 7 s were asked for", got)
	}
}

// TestTimeScale: a scale of the job's time applies to its leases, except to a lease that the user gives.
func TestTimeScale(t *testing.T) {
	j := &job{state: state{spec: &Spec{JobOptions: wire.JobOptions{TimeScale: 0.2}}}}
	if got := j.lease(); got != 6*time.Second {
		t.Errorf("lease %v", got)
	}
	if j.spec.Lease = 7 * time.Second; j.lease() != 7*time.Second {
		t.Errorf("lease %v, 7 s were asked for", j.lease())
	}
}
