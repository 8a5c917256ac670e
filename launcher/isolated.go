package launcher

import (
	"errors"
	"syscall"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/talk"
	"gorun/rendezvous/wire"
)

// A launcher that hears none of its hosts is most likely cut off itself. Its hosts may well hear each other and
// continue to train, so it evicts none of them and begins no world. But the hosts do not hear the launcher either, and
// end the job after a while. After that the launcher has nothing to wait for. The same holds for a launcher that was
// stopped.

// stopped returns how long the launcher was stopped, if a host has ended the job for it; otherwise 0.
func (s *state) stopped(now time.Time, h *host) time.Duration {
	p := h.Spoken.Silent(now)
	announced := s.asleep.now || p.From.Before(s.asleep.until)
	if _, renewed := h.Line(); !renewed || s.spec.Replicator != nil || announced || now.Sub(p.To) > s.timing().Aftermath ||
		p.Lasted() < s.timing().Launcher(s.lease()) {
		return 0
	}
	return p.Lasted()
}

// outlived reports whether the hosts have ended the job, or are about to, because they do not hear the launcher.
func (s *state) outlived(now time.Time) bool {
	since := s.alive.IsolatedSince()
	return !since.IsZero() && now.Sub(since) >= s.timing().Launcher(s.lease())
}

// abandoned reports whether an event shows that hosts have ended the job because they did not hear its launcher.
func (s *state) abandoned(now time.Time, h *host, ev talk.Event) bool {
	switch m := ev.Msg.(type) {
	case *wire.Exited:
		return m.Deaf && s.stopped(now, h) > 0
	case *wire.Failed, *wire.Rejoining:
		return s.stopped(now, h) > 0
	}
	return ev.Err != nil && (s.outlived(now) || s.stopped(now, h) > 0)
}

// endIsolated ends the job, and with it the search for its hosts.
func (j *job) endIsolated() {
	e := &failure.IsolatedError{Since: j.alive.IsolatedSince(), Limit: j.timing().Launcher(j.lease())}
	now := time.Now()
	for _, h := range j.hosts {
		if h.up && !h.ended {
			e.Hosts++
			e.Stopped = max(e.Stopped, j.stopped(now, h))
		}
	}
	j.stop(e)
	for _, h := range j.hosts {
		if h.up {
			why := &failure.HostError{Host: h.name, Step: "run", Err: errors.New("not heard"), Code: failure.ExitTransport}
			j.evict(h, why, eviction{})
		}
	}
}

// asleep notes when the user stops the launcher with Ctrl-Z: hosts wait for that as long as it takes.
type asleep struct {
	now   bool
	until time.Time // when it was last woken
}

func (a *asleep) signalled(number int, now time.Time) {
	switch {
	case syscall.Signal(number) == syscall.SIGTSTP:
		a.now = true
	case syscall.Signal(number) == syscall.SIGCONT && a.now: // it ends kill -STOP as well
		a.now, a.until = false, now
	}
}
