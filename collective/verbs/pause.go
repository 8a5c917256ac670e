package verbs

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// errPaused ends the connections that a pause finds.
var errPaused = errors.New("RDMA is paused")

// mostPause bounds a pause whose end is never reported.
const mostPause = time.Hour

// Pause lets no stream get a queue pair until Resume, and does not wait. drain moves all streams to TCP, and returns once
// every queue pair is destroyed, or after a few seconds. Devices have as long as within to complete what was posted.
// vSphere demands this before it moves a virtual machine.
func (t *Transport) Pause() (drain func(within time.Duration)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paused = t.now() + mostPause
	return t.drain
}

// drain frees all queue pairs, unless Resume comes first.
func (t *Transport) drain(within time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.pauses() {
		return
	}
	for conn := range t.opening {
		conn.SetDeadline(time.Now())
	}
	up := slices.Collect(maps.Keys(t.up))
	t.mu.Unlock()
	for _, c := range up {
		c.drain(within)
	}
	t.mu.Lock()
	over := false
	limit := time.AfterFunc(within+2*t.cfg.Probe, func() { // a probe may be under way
		t.mu.Lock()
		defer t.mu.Unlock()
		over = true
		t.freed.Broadcast()
	})
	defer limit.Stop()
	for t.held > 0 && !over && t.pauses() {
		t.freed.Wait()
	}
}

// Resume ends a pause. A stream that is opened from now on may go over RDMA.
func (t *Transport) Resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paused = 0
	t.freed.Broadcast()
}

// pauses reports whether there is a pause. mu is held.
func (t *Transport) pauses() bool { return t.now() < t.paused }

// heldPair is a queue pair that held counts.
type heldPair struct {
	Pair
	release func()
}

func (p heldPair) Close() error {
	defer p.release()
	return p.Pair.Close()
}

// discard closes a queue pair that carries no stream. It does not wait for the driver.
func (t *Transport) discard(p Pair) { t.goes.Go(func() { p.Close() }) }

// release is the end of a queue pair that held counts.
func (t *Transport) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held--; t.held == 0 {
		t.freed.Broadcast()
	}
}
