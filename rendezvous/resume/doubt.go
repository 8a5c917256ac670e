package resume

import (
	"context"
	"io"
	"sync/atomic"
	"time"
)

// A connection that brings nothing may have no other end any more, because the host has another address, something in between has
// forgotten it, or the host stands still. Nobody can tell these apart, so another one is looked for beside it.

// Doubt is how long a connection may bring nothing until another one is tried. Daemons speak every second.
const Doubt = 4 * time.Second

// Pause waits between two tries. It returns false if ctx ends before.
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

// Listener notes since when one waits for more to read.
type Listener struct {
	io.Reader
	since atomic.Int64
}

// Read implements io.Reader.
func (l *Listener) Read(b []byte) (int, error) {
	l.since.Store(time.Now().UnixNano())
	defer l.since.Store(0)
	return l.Reader.Read(b)
}

// Waits is since when, in nanoseconds of the clock; 0 while one does not wait.
func (l *Listener) Waits() int64 { return l.since.Load() }

// silence is how long a connection has brought nothing, as far as this host could hear it.
type silence struct {
	looked time.Time
	since  time.Time
}

// look takes since when one waits for the connection to bring something, zero if one does not: what is not read cannot be heard.
func (s *silence) look(now, waits time.Time) time.Duration {
	stood := now.Sub(s.looked) > listenEvery+punctual // this host did, or has just begun: who looks for it could not reach it meanwhile
	s.looked = now
	switch {
	case stood || waits.IsZero():
		s.since = now
	case waits.After(s.since):
		s.since = waits
	}
	return now.Sub(s.since)
}

// Carrier is a connection that carries a stream.
type Carrier[C any] struct {
	Over  <-chan struct{} // closed when it does so no more
	Waits func() int64    // since when it brings nothing, see Listener
	Doubt time.Duration   // how long it may do so
	// Find looks for another connection while silent is true. It returns whether it has one.
	Find func(ctx context.Context, silent func() bool) (C, bool)
	// Drop ends one that is not wanted.
	Drop func(C)
}

// Follow returns when the connection is over, or when there is another one that is to go on in its place; then it has yet to be
// ended.
func (c Carrier[C]) Follow(ctx context.Context, s *Stream) (next C, found bool) {
	type result struct {
		conn  C
		found bool
	}
	trying, stop := context.WithCancel(ctx)
	defer stop()
	var other chan result
	defer func() {
		if other != nil { // its result comes to nobody
			stop()
			if late := <-other; late.found {
				c.Drop(late.conn)
			}
		}
	}()
	silent := func() bool { return false }
	look := time.NewTicker(c.Doubt / 4)
	defer look.Stop()
	looked := time.Now()
	for {
		select {
		case <-c.Over:
			return next, false
		case now := <-look.C:
			stood := now.Sub(looked) > c.Doubt/2 // this machine stood still: all have been silent
			looked = now
			since := c.Waits()
			if other != nil || stood || since == 0 || now.Sub(time.Unix(0, since)) < c.Doubt {
				continue
			}
			acknowledged := s.acknowledgedUpTo()
			silent = func() bool { return c.Waits() == since || s.stuck(acknowledged) }
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
				c.Drop(r.conn) // the present one is well again
			default:
				return r.conn, true
			}
		}
	}
}
