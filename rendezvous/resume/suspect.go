package resume

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"gorun/rendezvous/liveness"
)

// A connection that delivers nothing may be dead: the host has another address, a middlebox has forgotten it, or the
// host is paused. These look the same from here, so another connection is sought while the first is kept.

// Pause waits between two attempts. It returns false if ctx ends first.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Moment is a time that any goroutine may use; at first it is zero. It keeps the reading of the monotonic clock, because
// the wall clock may be set meanwhile.
type Moment struct{ at atomic.Pointer[time.Time] }

// Set changes the time.
func (m *Moment) Set(t time.Time) { m.at.Store(&t) }

// Get returns the time that was set last.
func (m *Moment) Get() time.Time {
	if at := m.at.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Listener is a reader that records since when a Read has been waiting.
type Listener struct {
	io.Reader
	since Moment
}

// Read implements io.Reader.
func (l *Listener) Read(b []byte) (int, error) {
	l.since.Set(time.Now())
	defer l.since.Set(time.Time{})
	return l.Reader.Read(b)
}

// Waits returns since when a Read has been waiting; zero if none is.
func (l *Listener) Waits() time.Time { return l.since.Get() }

// silence measures how long a connection has delivered nothing while this host could hear it.
type silence struct {
	pauses liveness.Gaps
	since  time.Time
}

// look returns the length of the silence. waits is since when a Read has been waiting, zero if none is: without a
// reader nothing can be heard.
func (s *silence) look(now, waits time.Time) time.Duration {
	s.pauses.Limit = timing.LookInterval + timing.Late()
	_, paused := s.pauses.Look(now)
	switch {
	case paused || s.since.IsZero() || waits.IsZero(): // its peer could not reach this host, or it has just started
		s.since = now
	case waits.After(s.since):
		s.since = waits
	}
	return now.Sub(s.since)
}

// Carrier is a connection that carries a stream.
type Carrier[C any] struct {
	Over         <-chan struct{}  // closed when it no longer does
	Waits        func() time.Time // since when it delivers nothing, see Listener
	SuspectAfter time.Duration    // how long it may do so
	// Find looks for another connection while silent returns true. It reports whether it found one.
	Find func(ctx context.Context, silent func() bool) (C, bool)
	// Drop closes a connection that is not needed.
	Drop func(C)
}

// Follow returns when the connection has ended, or when another one is to replace it. The caller must then close the
// old one.
func (c Carrier[C]) Follow(ctx context.Context, s *ResumableStream) (next C, found bool) {
	type result struct {
		conn  C
		found bool
	}
	trying, stop := context.WithCancel(ctx)
	defer stop()
	var other chan result
	defer func() {
		if other != nil { // its result is not used
			stop()
			if late := <-other; late.found {
				c.Drop(late.conn)
			}
		}
	}()
	silent := func() bool { return false }
	look := time.NewTicker(c.SuspectAfter / 4)
	defer look.Stop()
	pauses := liveness.Gaps{Limit: c.SuspectAfter / 2}
	pauses.Look(time.Now())
	for {
		select {
		case <-c.Over:
			return next, false
		case now := <-look.C:
			_, paused := pauses.Look(now) // all connections have been silent meanwhile
			since := c.Waits()
			if other != nil || paused || since.IsZero() || now.Sub(since) < c.SuspectAfter {
				continue
			}
			acknowledged := s.acknowledgedUpTo()
			silent = func() bool { return c.Waits().Equal(since) || s.stuck(acknowledged) }
			results := make(chan result, 1)
			other = results
			go func(silent func() bool) {
				conn, found := c.Find(trying, silent)
				results <- result{conn, found}
			}(silent)
		case r := <-other:
			other = nil
			switch {
			case !r.found:
			case !silent():
				c.Drop(r.conn) // the present connection has recovered
			default:
				return r.conn, true
			}
		}
	}
}
