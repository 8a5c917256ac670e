package worker

import (
	"syscall"
	"testing"
	"time"
)

// TestLauncherLeaseTellsOnlyChanges: what has not changed is not reported to peers.
func TestLauncherLeaseTellsOnlyChanges(t *testing.T) {
	l := NewLauncherLease()
	l.Hears(true)
	if len(l.changed) != 0 {
		t.Error("nothing has changed")
	}
	l.Hears(false)
	l.Hears(false)
	if len(l.changed) != 1 {
		t.Error("it has changed")
	}
}

// TestLauncherLeaseSignals: Ctrl-Z suspends the lease of the launcher, and other signals do not.
func TestLauncherLeaseSignals(t *testing.T) {
	l := NewLauncherLease()
	for _, tc := range []struct {
		signal syscall.Signal
		want   time.Duration
	}{{syscall.SIGUSR1, 30 * time.Second}, {syscall.SIGTSTP, 0}, {syscall.SIGUSR1, 0}, {syscall.SIGCONT, 30 * time.Second}} {
		if l.signalled(int(tc.signal)); l.Limit() != tc.want {
			t.Errorf("after %v: %v, want %v", tc.signal, l.Limit(), tc.want)
		}
	}
}
