package liveness_test

import (
	"testing"
	"time"

	"gorun/rendezvous/liveness"
)

// TestLauncherLease: a launcher lives as long as a host of the world may hear it.
func TestLauncherLease(t *testing.T) {
	var l liveness.LauncherLease
	expect := func(want bool, when string) {
		t.Helper()
		if got := l.Extend(time.Second); got != want {
			t.Errorf("%s: waits longer is %v", when, got)
		}
	}
	expect(true, "before the first world")
	if l.Extend(20 * time.Second) {
		t.Error("a host waits for ever before the first world")
	}
	l.World(1, nil, 0)
	expect(false, "without peers")
	l.World(1, []int{1, 2}, 0)
	expect(false, "no peer was met")
	l.Heard(4)
	expect(false, "a host of no world was")
	l.Heard(1)
	l.Heard(2)
	expect(true, "no report is good news")
	l.Peer(1, 1, false)
	expect(true, "one of two is deaf")
	l.Peer(2, 3, false)
	expect(false, "both are deaf")
	l.Peer(2, 2, true)
	expect(false, "an older report comes late")
	l.Peer(3, 1, true)
	expect(false, "a host of no world hears something")
	l.Peer(1, 2, true)
	expect(true, "one hears it again")
	l.World(2, []int{2}, 0)
	expect(false, "that one is not in the next world")
	l.World(3, []int{2, 4}, 0)
	expect(true, "a new one is")
	l.Silent(4)
	expect(false, "and is silent")
	l.Heard(4)
	expect(true, "and is back")
	l.World(4, []int{4}, time.Minute)
	for waited, want := range map[time.Duration]bool{59 * time.Second: true, time.Minute: false} {
		if got := l.Extend(waited); got != want {
			t.Errorf("after %v, with a lease of a minute: waits longer is %v", waited, got)
		}
	}
	l.HungUp(map[int]bool{4: true, 5: true})
	expect(false, "it has ended its connections")
	l.HungUp(map[int]bool{})
	expect(true, "it has some again")
	l.Left(3)
	expect(true, "a late report that a former world goes on without this host")
	l.Left(4)
	expect(true, "one of the world that it is in")
	l.Left(6)
	expect(false, "the next world goes on without it")
	l.Left(4)
	expect(false, "and a late report does not change that")
	l.World(5, []int{4}, 0)
	expect(false, "nor does a roster that was overtaken")
	l.World(7, []int{4}, 0)
	expect(true, "this host is in a later world")
	l.World(8, nil, 0)
	expect(false, "it is in none")
	l.World(9, []int{4}, 0)
	expect(true, "it is in a world again")
	l.End()
	expect(false, "the job ends here")
	l.Left(3)
	expect(false, "and that does not change")
	l.Over()
	expect(true, "its ranks have ended")
	if l.Extend(20 * time.Second) {
		t.Error("a host waits for ever to report the end of its ranks")
	}
}

// TestLauncherLeaseLimit: how long a launcher may be silent depends on the lease, but one that its user has stopped is silent for as
// long as that lasts.
func TestLauncherLeaseLimit(t *testing.T) {
	var l liveness.LauncherLease
	expect := func(want time.Duration, when string) {
		t.Helper()
		if got := l.Limit(); got != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	expect(30*time.Second, "before the job came")
	l.World(0, nil, time.Second)
	expect(30*time.Second, "a short lease")
	l.World(1, []int{1}, 2*time.Minute)
	expect(2*time.Minute+5*time.Second, "a long one")
	l.Stopped(true)
	expect(0, "stopped")
	l.World(2, nil, time.Minute)
	expect(0, "stopped, as the world changes")
	l.Stopped(false)
	expect(time.Minute+5*time.Second, "continued")
	l.Configure(liveness.Default().Scaled(0.2))
	l.World(3, nil, 0)
	expect(6*time.Second, "in a test that is five times as fast")
}
