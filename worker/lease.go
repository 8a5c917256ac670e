package worker

import (
	"sync"
	"syscall"
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
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
	if l == nil {
		return
	}
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
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.hears
}

// note applies a change to the state.
func (l *LauncherLease) note(change func(*liveness.LauncherLease)) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.state)
}

// signalled takes a signal that the launcher received and forwards to its ranks: Ctrl-Z suspends the lease.
func (l *LauncherLease) signalled(number int) {
	switch syscall.Signal(number) {
	case syscall.SIGTSTP:
		l.note(func(s *liveness.LauncherLease) { s.Stopped(true) })
	case syscall.SIGCONT:
		l.note(func(s *liveness.LauncherLease) { s.Stopped(false) })
	}
}

func (l *LauncherLease) configure(t liveness.Timing) {
	l.note(func(s *liveness.LauncherLease) { s.Configure(t) })
}

func (l *LauncherLease) world(epoch uint32, peers []int, lease time.Duration) {
	l.note(func(s *liveness.LauncherLease) { s.World(epoch, peers, lease) })
}

func (l *LauncherLease) end() { l.note((*liveness.LauncherLease).End) }

func (l *LauncherLease) over() { l.note((*liveness.LauncherLease).Over) }

func (l *LauncherLease) left(epoch uint32) {
	l.note(func(s *liveness.LauncherLease) { s.Left(epoch) })
}

func (l *LauncherLease) peer(m *wire.Hears) {
	l.note(func(s *liveness.LauncherLease) { s.Peer(m.Host, m.Stamp, m.Launcher) })
}

func (l *LauncherLease) silent(peer int) {
	l.note(func(s *liveness.LauncherLease) { s.Silent(peer) })
}

func (l *LauncherLease) heard(peer int) {
	l.note(func(s *liveness.LauncherLease) { s.Heard(peer) })
}

func (l *LauncherLease) hungUp(peers map[int]bool) {
	l.note(func(s *liveness.LauncherLease) { s.HungUp(peers) })
}
