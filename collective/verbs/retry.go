package verbs

import (
	"errors"
	"time"
)

// state returns what the transport knows of a stream. mu is held.
func (t *Transport) state(id streamID) *streamState {
	s := t.streams[id]
	if s == nil {
		s = &streamState{trial: trial{least: t.cfg.Tuning.Rest, most: mostRests * t.cfg.Tuning.Rest}}
		t.streams[id] = s
	}
	return s
}

// broke takes note that the queue pair of a stream has ended. The link opens the stream again by itself.
func (t *Transport) broke(id streamID, c *Conn, err error) {
	failed := Broken(err) // else it was closed, or TCP broke
	t.mu.Lock()
	delete(t.up, c)
	tr := t.state(id)
	tr.on--
	rest := time.Duration(0)
	if failed {
		t.failures++
		rest = tr.failed(t.now())
	}
	// A connection without a queue pair may have replaced this one already: it got none while this one was up, or the
	// other side opened it before this one was up.
	waits := tr.waits || tr.on == 0
	t.mu.Unlock()
	if failed {
		t.report(id, err)
	}
	if rest > 0 || waits {
		t.retry(id)
	}
}

// Broken reports whether a queue pair, rather than TCP or this program, ended the connection.
func Broken(err error) bool {
	_, status := errors.AsType[*StatusError](err)
	_, event := errors.AsType[*EventError](err)
	_, other := errors.AsType[*pairError](err)
	return status || event || other
}

// pairError is an error of a queue pair other than a status or an event: the library refuses a request, or the peer
// violates the protocol.
type pairError struct{ err error }

func (e *pairError) Error() string { return "queue pair failed: " + e.err.Error() }
func (e *pairError) Unwrap() error { return e.err }

// ofPair returns an error of a queue pair so that Broken holds for it.
func ofPair(err error) error {
	if err == nil || Broken(err) || errors.Is(err, errPaused) {
		return err
	}
	return &pairError{err}
}

// failed takes note that a stream stays on TCP, and has it opened again later.
func (t *Transport) failed(id streamID, reason error) {
	t.mu.Lock()
	t.state(id).failed(t.now())
	t.mu.Unlock()
	t.report(id, reason)
	t.retry(id)
}

func (t *Transport) report(id streamID, reason error) {
	t.cfg.Log.Debug("RDMA does not carry a stream", "peer", id.peer, "stream", id.stream, "err", reason)
	if t.cfg.Problem != nil {
		t.cfg.Problem(id.peer, reason)
	}
}

// mostLook is how often a host looks at least for a port. That opens every device.
const mostLook = 5 * time.Second

// retry has a stream opened again after a time, and again until RDMA carries it or only the peer knows why it does not.
// While this host has no port for it, there is nothing to open, and it looks for one every few seconds.
func (t *Transport) retry(id streamID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tr := t.state(id)
	tr.waits = true
	if tr.retries || t.cfg.Retry == nil || t.ctx.Err() != nil {
		return
	}
	tr.retries = true
	t.goes.Go(func() {
		for rest := t.cfg.Tuning.Rest; ; {
			t.mu.Lock()
			wait := max(rest, tr.until-t.now())
			if tr.on > 0 || !tr.waits || t.ctx.Err() != nil {
				tr.retries = false
				t.mu.Unlock()
				return
			}
			t.mu.Unlock()
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-t.ctx.Done():
				timer.Stop()
				continue
			}
			t.mu.Lock()
			from, paused := tr.from, t.pauses()
			t.mu.Unlock()
			if paused {
				continue
			}
			most := mostRests * t.cfg.Tuning.Rest
			_, err := t.place(from)
			if err != nil {
				most = min(most, max(mostLook, t.cfg.Tuning.Rest))
			}
			if rest = min(2*rest, most); err == nil && !t.cfg.Retry(id.peer, id.stream) {
				t.mu.Lock()
				tr.waits = false
				t.mu.Unlock()
			}
		}
	})
}
