package worker

import (
	"syscall"
	"testing"
	"time"
)

// TestTie: a launcher lives as long as a host of the world may hear it.
func TestTie(t *testing.T) {
	tie := NewTie()
	expect := func(want bool, when string) {
		t.Helper()
		if got := tie.Elsewhere(time.Second); got != want {
			t.Errorf("%s: heard elsewhere is %v", when, got)
		}
	}
	expect(false, "without peers")
	tie.among(1, []int{1, 2}, 0)
	expect(true, "no news are good news")
	tie.peer(1, hearing{stamp: 1, deaf: true})
	expect(true, "one of two is deaf")
	tie.peer(2, hearing{stamp: 3, deaf: true})
	expect(false, "both are deaf")
	tie.peer(2, hearing{stamp: 2})
	expect(false, "an older word comes late")
	tie.peer(3, hearing{stamp: 1})
	expect(false, "a stranger hears something")
	tie.peer(1, hearing{stamp: 2})
	expect(true, "one hears it again")
	tie.among(2, []int{2}, 0)
	expect(false, "that one is not in the next world")
	tie.among(3, []int{2, 4}, 0)
	expect(true, "a new one is")
	tie.peer(4, hearing{stamp: forever, deaf: true})
	expect(false, "and is lost")
	tie.back(4)
	expect(true, "and is back")
	tie.among(4, []int{4}, time.Minute)
	for waited, want := range map[time.Duration]bool{59 * time.Second: true, time.Minute: false} {
		if got := tie.Elsewhere(waited); got != want {
			t.Errorf("after %v, with a lease of a minute: worth to wait for is %v", waited, got)
		}
	}
	tie.hungUp(map[int]bool{4: true, 5: true})
	expect(false, "it has ended its connections")
	tie.hungUp(map[int]bool{})
	expect(true, "it has some again")
	tie.without(3)
	expect(true, "a late word that a former world does without this host")
	tie.without(4)
	expect(true, "one of the world that it is in")
	tie.without(6)
	expect(false, "the next world does without it")
	tie.without(4)
	expect(false, "and a late word does not change that")
	tie.among(5, []int{4}, 0)
	expect(false, "nor does a roster that was overtaken")
	tie.among(7, []int{4}, 0)
	expect(true, "this host is in a later world")
	tie.among(8, nil, 0)
	expect(false, "it is spare")
	tie.among(9, []int{4}, 0)
	expect(true, "it is in a world again")
	tie.end()
	expect(false, "the job ends here")
	tie.without(3)
	expect(false, "and that does not change")
}

// TestTieTellsOnlyChanges: what has not changed is not told.
func TestTieTellsOnlyChanges(t *testing.T) {
	tie := NewTie()
	tie.Hears(true)
	if len(tie.changed) != 0 {
		t.Error("nothing has changed")
	}
	tie.Hears(false)
	tie.Hears(false)
	if len(tie.changed) != 1 {
		t.Error("it has changed")
	}
}

// TestTiePatience: how long a launcher may say nothing goes by the lease, but a launcher that its user has stopped is silent for as long
// as that lasts.
func TestTiePatience(t *testing.T) {
	tie := NewTie()
	expect := func(want time.Duration, when string) {
		t.Helper()
		if got := tie.Patience(); got != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	expect(30*time.Second, "before the job came")
	tie.among(0, nil, time.Second)
	expect(30*time.Second, "a short lease")
	tie.among(1, []int{1}, 2*time.Minute)
	expect(2*time.Minute+5*time.Second, "a long one")
	tie.signalled(int(syscall.SIGUSR1))
	expect(2*time.Minute+5*time.Second, "another signal")
	tie.signalled(int(syscall.SIGTSTP))
	expect(0, "stopped")
	tie.among(2, nil, time.Minute)
	expect(0, "stopped, as the world changes")
	tie.signalled(int(syscall.SIGCONT))
	expect(time.Minute+5*time.Second, "continued")
}
