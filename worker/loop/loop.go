// Package loop serializes the decisions of a daemon on one goroutine, as the daemon's components see it.
//
// A component keeps state that only that goroutine touches. What else runs (gossip, links, services, probes) is started
// by Go, and reports by Post, whose functions run on the goroutine one after the other.
package loop

import (
	"context"
	"sync"
)

// Loop runs functions on one goroutine. The zero value is not ready; use New.
type Loop struct {
	events chan func()
	wg     sync.WaitGroup
}

// New returns a loop; its owner calls what C brings.
func New() *Loop { return &Loop{events: make(chan func(), 64)} }

// Post has f called on the loop's goroutine, unless ctx ends before.
func (l *Loop) Post(ctx context.Context, f func()) {
	select {
	case l.events <- f:
	case <-ctx.Done():
	}
}

// C brings the functions to call.
func (l *Loop) C() <-chan func() { return l.events }

// Go calls f on a goroutine of its own, which Wait waits for.
func (l *Loop) Go(f func()) { l.wg.Go(f) }

// Wait returns when all that Go has started has returned.
func (l *Loop) Wait() { l.wg.Wait() }
