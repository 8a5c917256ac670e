package launcher

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorun/launcher/failure"
	"gorun/rendezvous/wire"
)

// A job that ends waits for its daemons. Users read which hosts it waits for, and finally where ranks may still run.

// stragglers returns the hosts that have not ended: the silent ones, with the longest silence, and the slow ones.
func (s *state) stragglers(now time.Time) (silent []string, since time.Duration, slow []string) {
	for _, h := range s.hosts {
		if !h.up || h.ended || h.evicted != nil && !h.evicted.own {
			continue
		}
		if quiet, is := s.alive.Straggles(now, s.contact(now, h)); is {
			silent, since = append(silent, h.name), max(since, quiet)
		} else {
			slow = append(slow, h.name)
		}
	}
	return silent, since, slow
}

// tellStragglers tells the user which hosts the end of the job waits for.
func (s *state) tellStragglers(now time.Time) {
	silent, since, slow := s.stragglers(now)
	if len(silent) > 0 {
		s.spec.Note("gorun: waiting for %s, silent for %.0f s", someOf(silent), since.Seconds())
	}
	if len(slow) > 0 {
		s.spec.Note("gorun: waiting for %s, where ranks have not ended", someOf(slow))
	}
}

// tellLeft tells the user, when the wait is over, on which hosts ranks may still run: neither the ranks nor the host
// are known to have ended.
func (s *state) tellLeft(now time.Time) {
	if _, alone := errors.AsType[*failure.IsolatedError](s.verdict); alone {
		return // the verdict explains what becomes of the ranks
	}
	silent, _, _ := s.stragglers(now)
	var left []string
	for _, h := range s.hosts {
		if s.mayRun(h) && (h.evicted != nil && h.evicted.mayLive || slices.Contains(silent, h.name)) {
			left = append(left, h.name)
		}
	}
	if len(left) == 0 {
		return
	}
	s.spec.Note("gorun: %s did not answer: ranks may still run there", someOf(left))
	s.spec.Note("gorun: hint: they end soon after the host goes on, or is connected again: there, pgrep -af 'gorun worker' shows whether they have")
}

// mayRun reports whether a host has ranks that are not known to have ended.
func (s *state) mayRun(h *host) bool {
	runs := func(r wire.Rank) bool { return !s.processes.at(r.Process).exited }
	return h.ready != nil && slices.ContainsFunc(h.Ranks(), runs)
}

// someOf lists names, no more than fit into a line.
func someOf(names []string) string {
	const most = 3
	if len(names) > most+1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
