package link

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"time"

	"gorun/collective/admit"
	"gorun/collective/flight"
)

// How streams are opened and replaced.

// want opens the first n slots and starts their dialers. The side with the lower id dials at once, the other one only
// if no connection comes: its own address may be the one that changed.
func (l *link) want(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, sl := range l.slots[:n] {
		if !sl.open {
			sl.unfold()
			sl.restore(nil)
		}
	}
}

// unfold records that a slot is to have a stream from now on. mu is held.
func (sl *slot) unfold() {
	l := sl.link
	if !sl.open {
		sl.open = true
		l.opened++
	}
}

// widenAfter is how many bytes of large segments a link carries over its first streams before it opens all.
const widenAfter = 1 << 20

// grow opens what a segment of n bytes needs: one stream if the link has none, and all of them once it has carried
// much. The peer may not know yet that it should dial, so the side with the higher id waits, for each stream that this
// host is opening: peers that share processors take their time, and a stream that both dial costs twice. mu is held.
func (l *link) grow(n int) {
	if l.opened == len(l.slots) {
		return
	}
	want := 1
	if n > smallLimit {
		if l.bulky += n; l.bulky > widenAfter {
			want = len(l.slots)
		}
	}
	delay := time.Duration(0)
	if l.mesh.cfg.Self > l.peer {
		delay = l.mesh.cfg.FallbackDial / 16 * time.Duration(1+min(l.mesh.dialers.Load(), 63))
	}
	for _, sl := range l.slots[:want] {
		if !sl.open {
			sl.unfold()
			sl.redial(delay)
		}
	}
}

// unreachable reports whether a connection ended because packets did not get through. The peer most likely does not
// know yet.
func unreachable(err error) bool {
	return errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

// endedByPeer reports whether the peer's machine ended the connection, as it does for a process that has ended or a
// connection it knows nothing about.
func endedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// refused reports whether all addresses that were tried refused the connection. A single one may belong to another
// machine now, even to this one.
func refused(err error) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !refused(err) })
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// restore replaces a stream that is down because of err. mu is held.
func (sl *slot) restore(err error) {
	l := sl.link
	if !sl.open {
		return // the stream never came up
	}
	cfg := &l.mesh.cfg
	if st := sl.stream; time.Since(sl.since) > cfg.BackoffMax || st != nil && st.took+st.progress > 0 {
		sl.flaps = 0
	}
	delay := l.backoff(sl.flaps)
	sl.flaps++
	if l.mesh.cfg.Self > l.peer && !unreachable(err) {
		delay += cfg.FallbackDial
	}
	sl.redial(delay)
}

// backoff returns how long to wait after n failures: zero at first, then doubling, with jitter.
func (l *link) backoff(n int) time.Duration {
	if n == 0 {
		return 0
	}
	d := min(l.mesh.cfg.BackoffMin<<min(n-1, 20), l.mesh.cfg.BackoffMax)
	return d/2 + rand.N(d)
}

// redial makes sure that there is a dialer. mu is held.
func (sl *slot) redial(delay time.Duration) {
	l := sl.link
	if l.mesh.cfg.Dial == nil || sl.dialing || l.closed || l.lost != nil {
		return
	}
	sl.dialing = true
	l.mesh.dialers.Add(1)
	l.wg.Add(1)
	go sl.dial(delay)
}

// renew replaces the streams for which stale returns true; its argument is nil for one that was never up.
func (l *link) renew(stale func(*stream) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.width.narrow, l.width.blocked, l.width.choked = 0, time.Time{}, choked{} // the path may be another one now
	l.renewLocked(stale)
}

func (l *link) renewLocked(stale func(*stream) bool) {
	for _, sl := range l.slots {
		if !sl.open || !stale(sl.stream) {
			continue
		}
		sl.replacing, sl.suspect, sl.flaps = true, false, 0
		if sl.abandon != nil && !sl.spared {
			sl.abandon() // it may be blocked on a dead path
		}
		select {
		case sl.kick <- struct{}{}:
		default:
		}
		sl.redial(0)
	}
}

// dial is the dialer of a slot. It ends when the stream is up.
func (sl *slot) dial(delay time.Duration) {
	l := sl.link
	defer l.wg.Done()
	defer l.mesh.dialers.Add(-1)
	for failures := 1; ; failures++ {
		sl.pause(delay)
		l.mu.Lock()
		if l.ctx.Err() != nil || !sl.vacantLocked() {
			sl.dialing = false
			l.mu.Unlock()
			return
		}
		ctx, cancel := context.WithCancel(l.ctx)
		sl.abandon = cancel
		l.mu.Unlock()
		began := time.Now()
		err := sl.connect(ctx)
		abandoned := ctx.Err() != nil
		cancel()
		l.mu.Lock()
		sl.abandon, sl.spared = nil, abandoned
		if err == nil {
			sl.dialing = false
			switch {
			case sl.stream == nil || sl.stream.closed:
				sl.restore(nil) // broken again already
			case sl.replacing:
				sl.redial(0)
			}
			l.mu.Unlock()
			return
		}
		if l.ctx.Err() == nil {
			l.last = err
			l.hungUp = l.hungUp || l.up == 0 && refused(err)
		}
		l.mu.Unlock()
		l.mesh.changed.notify()
		switch {
		case errors.Is(err, ErrKey):
			l.mesh.refusals.note("could not connect", "peer", l.peer, "err", err)
			delay = 10 * l.mesh.cfg.BackoffMax
		case errors.Is(err, errNotReady), unreachable(err): // either may change at any moment
			delay = min(l.backoff(failures), l.mesh.cfg.BackoffMax/5)
		case time.Since(began) > l.mesh.cfg.BackoffMax:
			delay = 0 // there was no answer, and that took as long as a pause
		default:
			delay = l.backoff(failures)
		}
	}
}

// vacantLocked reports whether the slot needs a stream. link.mu is held.
func (sl *slot) vacantLocked() bool { return sl.stream == nil || sl.stream.closed || sl.replacing }

// vacant reports whether the slot needs a stream.
func (sl *slot) vacant() bool {
	sl.link.mu.Lock()
	defer sl.link.mu.Unlock()
	return sl.vacantLocked()
}

// pause waits for d, a kick or the end.
func (sl *slot) pause(d time.Duration) {
	l := sl.link
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-sl.kick:
	case <-l.ctx.Done():
	}
}

// connect opens a stream: it dials and goes through the handshake.
func (sl *slot) connect(ctx context.Context) error {
	l := sl.link
	m := l.mesh
	limit, cancel := context.WithTimeout(ctx, m.cfg.DialTimeout)
	defer cancel()
	conn, err := l.open(limit, sl.index)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	conn.SetDeadline(time.Now().Add(m.cfg.HandshakeTimeout))
	hello := m.introduce(l)
	hello.Stream, hello.To = uint16(sl.index), uint32(l.peer)
	challenge, keys, err := m.cred.meet(conn, hello)
	if err == nil {
		l.touch() // the peer is up, even if it cannot attach the stream now
		err = l.bind(challenge.Mine, challenge.Yours)
	}
	if err == nil && !sl.vacant() {
		err = errGivenUp // the old stream has recovered meanwhile
	}
	if err == nil {
		keys, err = m.upgrade(ctx, keys, l.peer, sl.index, challenge.upgrades())
	}
	if err == nil {
		if err = sl.attach(keys); err != nil {
			keys.Close()
		}
	}
	if err != nil {
		conn.Close()
	}
	l.damagedHandshake(conn, err)
	return err
}

// accept accepts streams that peers open. An unauthenticated peer has little time, and only a few are served at once.
func (m *Mesh) accept() error {
	pause := time.Duration(0)
	for {
		conn, err := m.cfg.Listener.Accept()
		switch {
		case m.ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // most likely no file descriptors are left
			m.refusals.note("could not accept a connection", "err", err)
			pause = min(pause+m.cfg.BackoffMin, m.cfg.BackoffMax)
			select {
			case <-time.After(pause):
			case <-m.ctx.Done():
			}
			continue
		}
		pause = 0
		peer := m.door.Enter(conn)
		if !m.start(func() { m.receive(peer) }) {
			peer.Close()
		}
	}
}

// receive goes through the handshake of an accepted connection.
func (m *Mesh) receive(peer *admit.Conn) {
	conn := peer.Conn
	stop := context.AfterFunc(m.ctx, func() { conn.Close() })
	defer stop()
	conn.SetDeadline(time.Now().Add(m.cfg.HandshakeTimeout))
	var l *link
	hello, keys, err := m.cred.welcome(conn, func(hello *introduction) introduction {
		l = m.link(int(hello.From))
		return m.introduce(l)
	})
	peer.Known()
	switch {
	case err != nil:
		if m.ctx.Err() == nil {
			m.refusals.note("refused a connection", "from", conn.RemoteAddr(), "err", peer.Why(err))
		}
	case l == nil || int(hello.Stream) >= len(l.slots):
		err = errNotReady
	case !l.enter():
		err = errClosed
	default:
		l.touch()
		if err = l.bind(hello.Mine, hello.Yours); err == nil {
			stop := context.AfterFunc(l.ctx, func() { conn.Close() })
			if keys, err = m.upgrade(l.ctx, keys, l.peer, int(hello.Stream), hello.upgrades()); err == nil {
				if err = l.slots[hello.Stream].attach(keys); err != nil {
					keys.Close()
				}
			}
			stop()
			l.damagedHandshake(conn, err)
		}
		l.wg.Done()
	}
	if err != nil {
		m.log.Debug("handshake failed", "peer", hello.From, "stream", hello.Stream, "err", err)
		conn.Close()
	}
}

// introduce returns what this side says of itself, and of its link to the other side if there is one.
func (m *Mesh) introduce(l *link) introduction {
	in := introduction{From: uint32(m.cfg.Self)}
	if m.cfg.Upgrade != nil {
		in.Flags = introUpgrades
	}
	if l != nil {
		in.Mine, in.Yours = l.sessions()
	}
	return in
}

// sessions returns both sides' sessions, the peer's as far as it is known.
func (l *link) sessions() (mine, theirs session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return session{l.mesh.incarnation, l.number}, l.theirs
}

// bind compares the peer's proven sessions with the link's own. theirs is the session of its link to us, ours the
// session that its link belongs to.
func (l *link) bind(theirs, ours session) error {
	mine, known := l.sessions()
	var none session
	switch {
	case theirs == none || ours != none && ours != mine:
		// The peer has no link to us, or one to a former link of ours that it has yet to forget.
		return errNotReady
	case known == none:
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.theirs == none {
			l.theirs = theirs
		}
		if l.theirs != theirs {
			return errNotReady
		}
		return nil
	case known == theirs:
		return nil
	case known.Incarnation != theirs.Incarnation:
		l.lose(ErrRestarted)
		return ErrRestarted
	case known.Number < theirs.Number:
		l.lose(ErrReopened)
		return ErrReopened
	}
	return errNotReady // a delayed connection of a link that the peer has forgotten
}

// attach makes a connection the stream of the slot. The side with the lower id decides the order of streams: it counts
// generations, and a newer connection makes it drop one that it is still attaching.
func (sl *slot) attach(keys *keyed) error {
	l := sl.link
	leads := l.mesh.cfg.Self < l.peer
	var theirs resume
	if leads {
		l.mu.Lock()
		if sl.pending != nil {
			sl.pending.Close()
		}
		sl.pending = keys
		l.mu.Unlock()
	} else if err := readResume(keys, &theirs); err != nil {
		return err
	}
	sl.attaching.Lock()
	defer sl.attaching.Unlock()
	if leads {
		defer sl.settled(keys)
		if sl.superseded(keys) {
			return errGivenUp
		}
		sl.generation++
	} else {
		if theirs.generation <= sl.generation {
			return errGivenUp
		}
		sl.generation = theirs.generation
	}
	sl.detach()
	err := sl.exchange(keys, &theirs, leads)
	if err == nil {
		err = sl.resume(keys, &theirs)
	}
	if err != nil {
		l.mu.Lock()
		sl.restore(err) // the old stream is gone
		l.mu.Unlock()
	}
	return err
}

// exchange exchanges what was received; the side that leads goes first.
func (sl *slot) exchange(conn net.Conn, theirs *resume, leads bool) error {
	l := sl.link
	if err := writeResume(conn, l.progress(sl.generation)); err != nil {
		return err
	}
	if leads {
		if err := readResume(conn, theirs); err != nil {
			return err
		}
		if theirs.generation != sl.generation {
			return errGivenUp
		}
	}
	return conn.SetDeadline(time.Time{})
}

// superseded reports whether another connection is being attached by now.
func (sl *slot) superseded(conn *keyed) bool {
	sl.link.mu.Lock()
	defer sl.link.mu.Unlock()
	return sl.pending != conn
}

// settled notes that a connection is no longer being attached.
func (sl *slot) settled(conn *keyed) {
	sl.link.mu.Lock()
	defer sl.link.mu.Unlock()
	if sl.pending == conn {
		sl.pending = nil
	}
}

// detach ends the old stream of a slot. When it returns, no goroutine reads or writes on it, so its state is final.
func (sl *slot) detach() {
	l := sl.link
	l.mu.Lock()
	st := sl.stream
	if st != nil {
		st.close(errGivenUp)
	}
	l.mu.Unlock()
	if st != nil {
		st.wg.Wait()
	}
	l.mu.Lock()
	sl.stream = nil
	l.mu.Unlock()
}

// progress returns what was received.
func (l *link) progress(generation uint64) *resume {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &resume{generation: generation, base: l.got.base}
	l.got.appendMap(r.received[:0])
	l.acks.clear()
	return r
}

// resume queues what the peer lacks of the slot's old stream, and starts the new one.
func (sl *slot) resume(keys *keyed, theirs *resume) error {
	l := sl.link
	var words [span / 64]uint64
	var done queue
	readMap(&words, theirs.received[:])
	l.mu.Lock()
	err := l.acknowledge(theirs.base, words[:], &done)
	if err == nil && (l.closed || l.lost != nil) {
		err = errClosed
	}
	if err == nil {
		var lacking queue
		resent := 0
		l.out.win.each(func(s *Segment) {
			if s.state.stream == sl.index && !s.state.queued {
				s.state.again, s.state.queued = true, true
				lacking.push(s)
				resent++
			}
		})
		// Leftovers of an earlier stream that are still queued have waited longer.
		for lacking.head != nil {
			l.out.again.push(lacking.pop())
		}
		sl.unfold()
		newStream(l, sl.index, keys).start()
		sl.replacing, sl.suspect, sl.since = false, false, time.Now()
		l.stats.Attached++
		if sl.generation > 1 {
			l.mesh.events.add(l, sl.index, flight.Resumed, resent)
		}
		l.wakeAll()
	}
	l.mu.Unlock()
	l.notifyOwners(&done)
	l.mesh.changed.notify()
	return err
}
