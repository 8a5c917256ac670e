package verbs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"time"
)

// Upgrade returns what is to carry the bytes of a new stream: a Conn over conn, or conn itself. Both sides have proven
// who they are and call it at the same time. The error is one of conn, which is of no use any more.
func (t *Transport) Upgrade(_ context.Context, conn net.Conn, peer, stream int) (net.Conn, error) {
	id := streamID{peer, stream}
	size := t.cfg.Size
	if stream == 0 {
		size = t.cfg.Small
	}
	pair, place, mine, reason := t.open(conn, id, size)
	defer t.opened(conn)
	theirs, err := exchange(conn, &mine)
	if err != nil {
		if pair != nil {
			t.discard(pair)
			t.late(id, err)
		}
		return nil, err
	}
	if !mine.Have || !theirs.Have {
		if pair != nil {
			t.discard(pair)
		}
		switch {
		case reason != nil:
			t.failed(id, reason)
		case mine.Have:
			t.mu.Lock()
			t.state(id).waits = false
			t.mu.Unlock()
		default: // it is not the time
			t.retry(id)
		}
		return conn, nil
	}
	if reason = fit(&mine, &theirs); reason == nil {
		reason = t.call(func() error { return pair.Connect(mine.PSN, theirs.End, t.cfg.Tuning) },
			func() { pair.Close() })
	}
	good, err := agree(conn, reason)
	if err != nil || !good {
		if !errors.Is(reason, errHangs) {
			t.discard(pair)
		}
		return t.disagreed(id, conn, reason, err)
	}
	c := newConn(conn, pair, size, &t.goes)
	reason = lost(c.probe(t.cfg.Probe))
	good, err = agree(conn, reason)
	if err != nil || !good {
		c.Close()
		return t.disagreed(id, conn, reason, err)
	}
	t.mu.Lock()
	if t.pauses() {
		t.mu.Unlock()
		c.Close()
		return nil, errPaused
	}
	t.up[c] = true
	s := t.state(id)
	s.on++
	s.waits = false
	s.worked(t.now())
	t.mu.Unlock()
	if err := c.carry(func(err error) { t.broke(id, c, err) }); err != nil {
		t.mu.Lock()
		delete(t.up, c)
		s.on--
		t.mu.Unlock()
		if !errors.Is(err, errPaused) {
			t.failed(id, err)
		}
		return nil, err
	}
	if t.cfg.Carries != nil {
		place.MTU = min(place.MTU, int(theirs.MTU))
		t.cfg.Carries(peer, place)
	}
	return c, nil
}

// open makes this side's queue pair beside a connection, if it is the time for one.
func (t *Transport) open(conn net.Conn, id streamID, size Size) (Pair, Place, offer, error) {
	from := conn.LocalAddr()
	t.mu.Lock()
	s := t.state(id)
	s.from = from
	wants := s.wants(t.now()) && !t.pauses() && t.hanging == 0 && t.ctx.Err() == nil
	if wants {
		t.opening[conn] = true
		t.held++
	}
	t.mu.Unlock()
	if !wants {
		return nil, Place{}, offer{}, nil
	}
	var pair Pair
	var place Place
	if err := t.call(func() (err error) {
		pair, place, err = t.pair(from, size)
		if err != nil {
			t.release()
			return err
		}
		pair = heldPair{pair, t.release}
		return nil
	}, func() {
		if pair != nil {
			pair.Close()
		}
	}); err != nil {
		return nil, Place{}, offer{}, err
	}
	o := offer{Have: true, RoCE2: place.GID.RoCE2, End: pair.End(), RingBytes: uint32(size.Ring), Depth: uint32(size.Depth)}
	o.PSN = rand.Uint32() & byteMask
	return pair, place, o, nil
}

// opened is the end of an Upgrade.
func (t *Transport) opened(conn net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.opening, conn)
}

// disagreed returns what Upgrade does when the sides have not agreed.
func (t *Transport) disagreed(id streamID, conn net.Conn, reason, broken error) (net.Conn, error) {
	if broken != nil {
		t.late(id, broken)
		return nil, broken
	}
	t.failed(id, cmp.Or(reason, errPeer))
	return conn, nil
}

// errPeer means that the other side reports the reason.
var errPeer = errors.New("the other host could not use its queue pair")

// errLate means that making a queue pair and its first packets took longer than a new connection may take.
var errLate = errors.New("the hosts did not agree on a queue pair in time")

// late takes note of a connection that ended before the sides had agreed. A timeout counts as a failure: if a queue
// pair takes too long here every time, the stream would never come up without a rest. A connection that broke proves
// nothing about RDMA.
func (t *Transport) late(id streamID, broken error) {
	t.mu.Lock()
	paused := t.pauses() // which ends connections by a deadline
	t.mu.Unlock()
	if errors.Is(broken, os.ErrDeadlineExceeded) && !paused {
		t.failed(id, errLate)
	}
}

// errLost means that nothing arrives: a firewall drops UDP port 4791, a switch has a smaller MTU, or the peer is in another
// subnet, which RoCE v1 does not reach.
var errLost = errors.New("packets over the queue pair do not arrive; " +
	"UDP port 4791 must pass, MTUs agree, and other subnets need RoCE v2")

// lost explains why the first bytes over a queue pair have not arrived. Broken does not hold for its result, because the
// pair has never carried a stream.
func lost(err error) error {
	failed, _ := errors.AsType[*StatusError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded),
		failed != nil && (failed.Status == StatusRetries || failed.Status == StatusTime):
		return errLost
	}
	return fmt.Errorf("probe queue pair: %s", err.Error())
}

// probe sends bytes over the queue pair and receives the peer's.
func (c *Conn) probe(within time.Duration) error {
	b := make([]byte, probeSize)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8)
	}
	want := bytes.Clone(b)
	c.SetDeadline(time.Now().Add(within))
	if _, err := c.Write(b); err != nil {
		return err
	}
	clear(b)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if !bytes.Equal(b, want) {
		return errors.New("other bytes arrived than were sent")
	}
	return c.SetDeadline(time.Time{})
}
