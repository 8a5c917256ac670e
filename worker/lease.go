package worker

import (
	"sync"
	"syscall"
	"time"

	"gorun/rendezvous/liveness"
)

// LauncherLease decides how long a daemon waits for a silent launcher. It guards a liveness.LauncherLease, which the
// daemon and the connection to the launcher share.
type LauncherLease struct {
	changed chan struct{} // holds a token after a change of hears

	mu    sync.Mutex
	hears bool // this host hears the launcher
	state liveness.LauncherLease
}

// NewLauncherLease returns the lease of a launcher that the host hears.
func NewLauncherLease() *LauncherLease {
	return &LauncherLease{changed: make(chan struct{}, 1), hears: true}
}

// Hears notes whether this host hears the launcher.
func (l *LauncherLease) Hears(hears bool) {
	l.mu.Lock()
	changed := l.hears != hears
	l.hears = hears
	l.mu.Unlock()
	if changed {
		select {
		case l.changed <- struct{}{}:
		default:
		}
	}
}

// Limit returns how long the launcher may be silent while its connection stands, 0 for no limit.
func (l *LauncherLease) Limit() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.Limit()
}

// Extend reports whether to wait longer for a launcher that has been waited for this long already.
func (l *LauncherLease) Extend(waited time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.Extend(waited)
}

// deaf reports whether this host does not hear the launcher.
func (l *LauncherLease) deaf() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.hears
}

// note applies a change to the state.
func (l *LauncherLease) note(change func(*liveness.LauncherLease)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.state)
}

// signalled takes a signal that the launcher received and forwards to its ranks: Ctrl-Z suspends the lease.
func (l *LauncherLease) signalled(number int) {
	if signal := syscall.Signal(number); signal == syscall.SIGTSTP || signal == syscall.SIGCONT {
		l.note(func(s *liveness.LauncherLease) { s.Stopped(signal == syscall.SIGTSTP) })
	}
}
