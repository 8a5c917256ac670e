package launcher

import (
	"fmt"
	"slices"
	"time"

	"gorun/rendezvous/wire"
)

// A start waits for hosts. One that falls silent before there is a world, in which others would notice, has its lease as in
// a world. If the start fails, users read of that host, and not of those that do not reach it.

// awaited names the hosts that keep the start waiting.
func (j *job) awaited(now time.Time) string {
	if now.Sub(j.began) < j.timing().StartNoticeAfter || j.stopping {
		return ""
	}
	ready := j.hosts.allReady()
	var names []string
	for _, h := range j.hosts {
		if h.ended || h.leaving || h.failure != nil {
			continue
		}
		if h.ready == nil || ready && j.processes.missing(h) {
			names = append(names, h.name)
		}
	}
	return someOf(names)
}

// silentHosts returns how long the hosts have been silent on which a start that fails is to be blamed.
func (j *job) silentHosts(now time.Time) map[*host]time.Duration {
	silent := map[*host]time.Duration{}
	for _, h := range j.hosts {
		if quiet, failing := j.alive.Failing(now, j.contact(now, h)); failing {
			silent[h] = quiet
		}
	}
	return silent
}

// suspended reports whether a start that has taken too long waits for a silent host all the same.
func (j *job) suspended(now time.Time) bool {
	if j.late.IsZero() {
		j.late = now
	}
	return slices.ContainsFunc(j.hosts, func(h *host) bool {
		return j.alive.MayReturn(now, j.contact(now, h), j.late, j.limits())
	})
}

func silentError(h *host, since time.Duration) *HostError {
	return &HostError{Host: h.name, Step: "run", Err: fmt.Errorf("silent for %.0f s", since.Seconds()), Code: ExitTransport,
		Hint: "is the host up? A virtual machine that stands still has --lease to be back"}
}

// waitsForSilent reports whether to ignore a host's report that it cannot join the others: one of them was silent while it
// tried. It goes on trying, and the silent one has its lease.
func (j *job) waitsForSilent(now time.Time, f *wire.Failed) bool {
	return f.Again && j.membership.policy.Starting() &&
		slices.ContainsFunc(j.hosts, func(h *host) bool { return !h.ended && j.alive.Returning(now, j.contact(now, h)) })
}
