package liveness

import "time"

// How long a start, and the end, of a job waits for silent hosts: before the first world no peer reports a silence, and
// after the last one no peer is left.

// silence returns how long a host has been silent. ok is false for a host that has ended, or ends with its connection.
func (s *Hosts) silence(now time.Time, c Contact) (quiet time.Duration, ok bool) {
	if !c.Line.Kept || c.Ended {
		return 0, false
	}
	last := c.Heard
	if last.IsZero() { // it has yet to speak
		last = c.Line.Broken
	}
	if last.IsZero() {
		last = now
	}
	return s.Quiet(now, last), true
}

// missing reports whether a host is silent or out of reach, or was within grace: hosts that are back take a moment to
// find each other.
func (s *Hosts) missing(now time.Time, c Contact, grace time.Duration) bool {
	h := s.of(c.ID)
	if quiet, ok := s.silence(now, c); ok && c.Ready && (quiet >= s.timing.StragglerAfter || !c.Line.Broken.IsZero()) {
		h.missing = now
	}
	return now.Sub(h.missing) < grace
}

// Failing returns how long a host has been silent, and whether that explains why a start fails. A connection that has
// just ended explains nothing.
func (s *Hosts) Failing(now time.Time, c Contact) (quiet time.Duration, failing bool) {
	quiet, ok := s.silence(now, c)
	return quiet, ok && c.Ready && quiet >= s.timing.NoticeAfter
}

// Returning reports whether a host is silent or out of reach, or was so a moment ago, so that others may not have found
// it.
func (s *Hosts) Returning(now time.Time, c Contact) bool {
	return s.missing(now, c, s.timing.RejoinGrace)
}

// MayReturn reports whether a start that is overdue since late still waits for a host. A silent host has its lease to
// be back, and then the others have RejoinGrace to find it. A start waits no longer than both together.
func (s *Hosts) MayReturn(now time.Time, c Contact, late time.Time, v View) bool {
	quiet, ok := s.silence(now, c)
	lease := s.Lease(now, c.ID, v)
	return ok && s.Returning(now, c) && quiet < lease && now.Sub(late) < lease+s.timing.RejoinGrace
}

// Straggles returns how long a host that the end of a job waits for has been silent, and whether it counts as silent
// rather than slow.
func (s *Hosts) Straggles(now time.Time, c Contact) (quiet time.Duration, silent bool) {
	quiet = s.Quiet(now, c.Heard)
	return quiet, quiet >= s.timing.StragglerAfter
}
