package liveness

import "time"

// How long a start, and an end, waits for hosts that are silent. Before the first world no peer reports a silence, and
// after the last one none is left to.

// silence returns how long a host with a line has been silent. It is not ok for one that ends with its connection, or has ended.
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

// missing reports whether a host is silent or out of reach, or was so within grace: hosts that go on take a moment to find
// each other.
func (s *Hosts) missing(now time.Time, c Contact, grace time.Duration) bool {
	h := s.of(c.ID)
	if quiet, ok := s.silence(now, c); ok && c.Ready && (quiet >= s.timing.StragglerAfter || !c.Line.Broken.IsZero()) {
		h.missing = now
	}
	return now.Sub(h.missing) < grace
}

// Failing reports whether a host has been silent for so long that a start which fails is to be blamed on it, and for how
// long. A connection that has just ended proves nothing.
func (s *Hosts) Failing(now time.Time, c Contact) (quiet time.Duration, failing bool) {
	quiet, ok := s.silence(now, c)
	return quiet, ok && c.Ready && quiet >= s.timing.NoticeAfter
}

// Returning reports whether a host is silent or out of reach, or was so a moment ago, so that others may not have found it.
func (s *Hosts) Returning(now time.Time, c Contact) bool {
	return s.missing(now, c, s.timing.RejoinGrace)
}

// MayReturn reports whether a start that is late since some time waits for a host: a silent one has its lease to be back,
// and then the others have a moment to find it. In all that lasts no longer than one lease and that moment.
func (s *Hosts) MayReturn(now time.Time, c Contact, late time.Time, v View) bool {
	quiet, ok := s.silence(now, c)
	lease := s.Lease(now, c.ID, v)
	return ok && s.Returning(now, c) && quiet < lease && now.Sub(late) < lease+s.timing.RejoinGrace
}

// Straggles reports how long a host for which an end waits has been silent, and whether that counts: otherwise it is slow.
func (s *Hosts) Straggles(now time.Time, c Contact) (quiet time.Duration, silent bool) {
	quiet = s.Quiet(now, c.Heard)
	return quiet, quiet >= s.timing.StragglerAfter
}
