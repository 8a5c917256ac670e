package launcher

import (
	"fmt"
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

// AloneError ends a job whose launcher was cut off from all of its hosts.
type AloneError struct {
	Hosts int
	Since time.Time
	Limit time.Duration // after which hosts end a job without its launcher
}

func (e *AloneError) Error() string {
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
	limit := wire.LauncherLease(j.lease())
	switch quiet := now.Sub(j.alone.since); {
	case j.stopping:
	case quiet >= limit+lastOrders:
		j.endAlone()
	case quiet >= wire.SilentAfter && !was.told:
		j.alone.told = true
		j.spec.Note("gorun: this machine hears none of its %s since %s: look at its own network; the job goes on there until %s",
			topology.Count(len(heard), "host"), j.alone.since.Format(time.TimeOnly), j.alone.since.Add(limit).Format(time.TimeOnly))
	}
}

// outlived is true if the hosts have ended the job by now, or are about to, since they do not hear the launcher.
func (j *job) outlived(now time.Time) bool {
	return !j.alone.since.IsZero() && now.Sub(j.alone.since) >= wire.LauncherLease(j.lease())
}

// endAlone ends the job, and with it the search for its hosts.
func (j *job) endAlone() {
	hosts := 0
	for _, h := range j.hosts {
		if j.up[h.id] && !j.ended[h.id] {
			hosts++
		}
	}
	j.stop(&AloneError{Hosts: hosts, Since: j.alone.since, Limit: wire.LauncherLease(j.lease())})
	for _, h := range j.hosts {
		if j.up[h.id] && !j.ended[h.id] {
			j.giveUpOn(h, "not heard")
		}
	}
}
