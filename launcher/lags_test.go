package launcher

import (
	"testing"
	"time"

	"gorun/launcher/lag"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// TestLagLines: users read which rank or link slows the job down, where, and why.
func TestLagLines(t *testing.T) {
	slow := lag.Change{Rank: 3, Host: "host2", Own: 323400 * time.Microsecond, Usual: 211 * time.Millisecond, Stolen: 80 * time.Millisecond}
	with := func(c lag.Cause) lag.Change { slow.Cause = c; return slow }
	for want, c := range map[string]lag.Change{
		"rank 3 on host2 slows the job down: it takes 323ms for its part of a step, and others 211ms":                                                           slow,
		"rank 3 on host2 slows the job down: it takes 323ms for its part of a step, and others 211ms: it waits for its input data":                              with(lag.Data),
		"rank 3 on host2 slows the job down: it takes 323ms for its part of a step, and others 211ms: the hypervisor gives 80ms of each step to other machines": with(lag.Stolen),
		"rank 3 on host2 is as fast as others again":                                                 {Rank: 3, Host: "host2", Over: true},
		"the link from host3 to host4 slows the job down: it carries 10.1 MB/s, and others 118 MB/s": {Rank: -1, Host: "host3", To: "host4", Cause: lag.Carrying, Speed: 10.12e6, UsualSpeed: 118e6},
		"the link from host3 to host4 is as fast as others again":                                    {Rank: -1, Host: "host3", To: "host4", Cause: lag.Carrying, Over: true},
	} {
		if got := describeLag(c); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestLagsOfOtherWorlds: what a host counted in another world does not count.
func TestLagsOfOtherWorlds(t *testing.T) {
	j := &job{state: state{membership: newMembership(&Spec{Elastic: &ElasticSpec{}}), hosts: hostList{{id: 0, name: "host1"}}}}
	j.membership.epoch, j.membership.hosts = 2, []int{0}
	for epoch, want := range map[uint32]bool{1: false, 2: true} {
		j.lags.take(j.hosts[0], &wire.Usage{Epoch: epoch, Brief: true})
		if _, _, ok := j.counted(); ok != want {
			t.Errorf("epoch %d counts: %v", epoch, ok)
		}
	}
}

// TestLagsEvictSeldom: a host is drained because it lags once an hour at most: what is slow may be the work.
func TestLagsEvictSeldom(t *testing.T) {
	var l lags
	began := time.Now()
	for after, want := range []bool{true, false, false, true, false} {
		if got := l.evicts(began.Add(time.Duration(after) * 20 * time.Minute)); got != want {
			t.Errorf("after %d minutes: %v", after*20, got)
		}
	}
}

// TestLagsOfMoves: what ranks count while a host of the world moves, or is silent, does not count.
func TestLagsOfMoves(t *testing.T) {
	now, silent := time.Now(), false
	j := &job{state: state{membership: newMembership(&Spec{Elastic: &ElasticSpec{}}), hosts: hostList{{id: 0, name: "host1"}},
		alive: liveness.NewHosts(liveness.Default())}}
	j.membership.hosts, j.membership.hears = []int{0}, func(int) bool { return !silent }
	is := func(want bool) {
		t.Helper()
		if got := j.disturbed(now); got != want {
			t.Errorf("disturbed: %v", got)
		}
	}
	is(false)
	silent = true
	is(true)
	silent = false
	j.alive.Moves(0, now.Add(time.Second))
	is(true)
	now = now.Add(2 * time.Second)
	is(false)
}
