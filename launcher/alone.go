package launcher

import (
	"fmt"
	"sync"
	"syscall"
	"time"

	"gorun/rendezvous/wire"
	"gorun/topology"
)

// A launcher that hears none of its hosts is most likely cut off itself. Its hosts may well hear each other and train on, so that is
// no reason to give one of them up, nor to begin another world of which nobody would hear. But they do not hear their launcher either,
// and end the job by themselves after a while (worker/tie.go). For longer than that there is nothing to wait for.

// lastOrders is how much later than its hosts the launcher ends a job. They have last heard each other at about the same time, and
// hosts ask each other whether one hears the launcher still.
const lastOrders = 5 * time.Second

// AloneError ends a job whose launcher was cut off from all of its hosts, or was stopped, for longer than they wait for it.
type AloneError struct {
	Hosts   int
	Since   time.Time
	Stopped time.Duration // how long the launcher was stopped, 0 if it was not
	Limit   time.Duration // after which hosts end a job without its launcher
}

func (e *AloneError) Error() string {
	if e.Stopped > 0 {
		return fmt.Sprintf("gorun, or this machine, was stopped for %.0f s, and without it its %s end the job after %v",
			e.Stopped.Seconds(), topology.Count(e.Hosts, "host"), e.Limit)
	}
	return fmt.Sprintf("this machine has heard none of its %s since %s, and without it they end the job after %v",
		topology.Count(e.Hosts, "host"), e.Since.Format(time.TimeOnly), e.Limit)
}

// alone is since when the launcher has heard none of several hosts.
type alone struct {
	since time.Time // zero if it hears one
	told  bool
}

// lonely is since when nothing was heard of hosts that were last heard at these times, zero if that is a moment ago, or if there are no
// several of them: of one host it is as likely the host.
func lonely(now time.Time, heard []time.Time) (since time.Time) {
	if len(heard) < 2 {
		return since
	}
	for _, at := range heard {
		if at.After(since) {
			since = at
		}
	}
	if now.Sub(since) < unheard {
		return time.Time{}
	}
	return since
}

// listenAlone notices that none of the hosts is heard, and that one is again: until then none of them could be.
func (j *job) listenAlone(now time.Time) {
	var heard []time.Time
	for _, h := range j.hosts {
		if j.up[h.id] && !j.ended[h.id] && !h.leaving {
			heard = append(heard, now.Add(-j.silences.quiet(now, h.heard.last(now))))
		}
	}
	was := j.alone
	j.alone.since = lonely(now, heard)
	if j.alone.since.IsZero() {
		j.alone.told = false
		if was.told && len(heard) > 0 {
			j.silences.floor = now
		}
		return
	}
	limit := j.timing().Launcher(j.lease())
	switch quiet := now.Sub(j.alone.since); {
	case j.stopping:
	case quiet >= limit+lastOrders:
		j.endAlone()
	case quiet >= j.timing().NoticeAfter && !was.told:
		j.alone.told = true
		j.spec.Note("gorun: this machine hears none of its %s since %s: look at its own network; the job goes on there until %s",
			topology.Count(len(heard), "host"), j.alone.since.Format(time.TimeOnly), j.alone.since.Add(limit).Format(time.TimeOnly))
	}
}

// outlived is true if the hosts have ended the job by now, or are about to, since they do not hear the launcher.
func (j *job) outlived(now time.Time) bool {
	return !j.alone.since.IsZero() && now.Sub(j.alone.since) >= j.timing().Launcher(j.lease())
}

// spoken notes when the launcher last said something to a host, and its last long pause before that.
type spoken struct {
	every time.Duration // it should
	mu    sync.Mutex
	last  time.Time
	pause pause
}

// pause is a time in which the launcher said nothing.
type pause struct{ from, to time.Time }

// lasted goes by the calendar if that says more: the other clock stops while a machine is suspended.
func (p pause) lasted() time.Duration {
	return max(p.to.Sub(p.from), p.to.Round(0).Sub(p.from.Round(0)))
}

func (s *spoken) note(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := (pause{s.last, now}); !s.last.IsZero() && p.lasted() > 2*s.every {
		s.pause = p
	}
	s.last = now
}

// silent returns the present pause, or else the last one.
func (s *spoken) silent(now time.Time) pause {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := (pause{s.last, now}); !s.last.IsZero() && p.lasted() > 2*s.every {
		return p
	}
	return s.pause
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

// consequences is the time after a stop in which the launcher still receives what its hosts did meanwhile.
const consequences = 30 * time.Second

// stopped returns how long the launcher was stopped, if that was so long that a host has ended the job; otherwise 0.
func (j *job) stopped(now time.Time, h *host) time.Duration {
	d := h.daemon.Load()
	p := h.spoken.silent(now)
	if d == nil || d.Away == nil || j.spec.Keeper != nil || j.asleep.now || p.from.Before(j.asleep.until) || now.Sub(p.to) > consequences ||
		p.lasted() < j.timing().Launcher(j.lease()) {
		return 0
	}
	return p.lasted()
}

// abandoned reports whether an event shows that hosts have ended the job because they did not hear its launcher.
func (j *job) abandoned(now time.Time, h *host, ev event) bool {
	switch m := ev.msg.(type) {
	case *wire.Exited:
		return m.Deaf && j.stopped(now, h) > 0
	case *wire.Failed, *wire.Rejoining:
		return j.stopped(now, h) > 0
	}
	return ev.err != nil && (j.outlived(now) || j.stopped(now, h) > 0)
}

// endAlone ends the job, and with it the search for its hosts.
func (j *job) endAlone() {
	e := &AloneError{Since: j.alone.since, Limit: j.timing().Launcher(j.lease())}
	now := time.Now()
	for _, h := range j.hosts {
		if j.up[h.id] && !j.ended[h.id] {
			e.Hosts++
			e.Stopped = max(e.Stopped, j.stopped(now, h))
		}
	}
	j.stop(e)
	for _, h := range j.hosts {
		if j.up[h.id] && !j.ended[h.id] {
			j.giveUpOn(h, "not heard")
		}
	}
}
