package launcher

import (
	"fmt"
	"slices"
	"time"

	"gorun/launcher/failure"
	"gorun/rendezvous/wire"
)

// A start waits for hosts. A host that falls silent before the first world has its lease, as in a world. If the start
// fails, users read of that host, and not of the hosts that cannot reach it.

// awaited names the hosts that keep the start waiting.
func (s *state) awaited(now time.Time) string {
	if now.Sub(s.began) < s.timing().StartNoticeAfter || s.stopping {
		return ""
	}
	ready := s.hosts.allReady()
	var names []string
	for _, h := range s.hosts {
		if h.ended || h.leaving || h.failure != nil {
			continue
		}
		if h.ready == nil || ready && s.processes.missing(h.Ranks()) {
			names = append(names, h.name)
		}
	}
	return someOf(names)
}

// silentHosts returns the hosts whose silence explains why a start fails, and how long each has been silent.
func (s *state) silentHosts(now time.Time) map[*host]time.Duration {
	silent := map[*host]time.Duration{}
	for _, h := range s.hosts {
		if quiet, failing := s.alive.Failing(now, s.contact(now, h)); failing {
			silent[h] = quiet
		}
	}
	return silent
}

// suspended reports whether a start that has taken too long still waits for a silent host.
func (s *state) suspended(now time.Time) bool {
	if s.late.IsZero() {
		s.late = now
	}
	return slices.ContainsFunc(s.hosts, func(h *host) bool {
		return s.alive.MayReturn(now, s.contact(now, h), s.late, s.limits()) ||
			h.ready == nil && h.Supplied(s.spec.StartTimeout) // its files are on their way
	})
}

func silentError(h *host, since time.Duration) *failure.HostError {
	return &failure.HostError{Host: h.name, Step: "run", Err: fmt.Errorf("silent for %.0f s", since.Seconds()), Code: failure.ExitTransport,
		Hint: "is the host up? A virtual machine that is paused has --lease to be back"}
}

// waitsForSilent reports whether to ignore a host's report that it cannot join the others, because one of them was
// silent while it tried. The host keeps trying, and the silent one has its lease.
func (s *state) waitsForSilent(now time.Time, f *wire.Failed) bool {
	return f.Again && s.membership.policy.Starting() &&
		slices.ContainsFunc(s.hosts, func(h *host) bool { return !h.ended && s.alive.Returning(now, s.contact(now, h)) })
}
