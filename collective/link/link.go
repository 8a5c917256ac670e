package link

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// link is the session with one peer.
type link struct {
	mesh   *Mesh
	peer   int
	number uint64 // of the link in this mesh

	ctx    context.Context // ends with the link
	cancel context.CancelFunc
	wg     sync.WaitGroup // all goroutines of the link
	ackDue *time.Timer    // fires when an acknowledgement has waited long enough
	heard  atomic.Int64   // nanoseconds from mesh.born to the last read or handshake, 0 for never

	mu      sync.Mutex
	closed  bool
	theirs  session // the peer's side, zero until the first handshake
	slots   []*slot
	up      int    // streams that are up
	idle    uint64 // bit per stream whose writer has nothing to do
	opened  int    // slots that are open, the first ones unless the peer opened others
	bulky   int    // bytes of large segments that were queued, for grow
	resting uint64 // bit per stream that is too slow for large segments, see pace.go
	width   width
	lost    error // the peer has another session now
	last    error // why the last attempt to connect failed
	hungUp  bool  // the peer closed the last stream, or its machine refuses another one

	out   outgoing
	watch watch
	got   receiveWindow
	acks  acks
	stats Totals
}

// watch decides when progress is checked, while segments are in flight.
type watch struct {
	timer *time.Timer // fires when a check is due
	armed bool
	since time.Time // when it was armed after a time with nothing in flight
	moved time.Time // when a check found that the peer's kernel had received some of what is in flight
}

// slot holds the streams of one index, one after the other. It opens them, and replaces those that broke.
type slot struct {
	link      *link
	index     int
	kick      chan struct{} // ends the dialer's wait
	attaching sync.Mutex    // held by the handshake that replaces the stream; guards generation

	generation uint64

	// Guarded by link.mu.
	stream    *stream // the last one, perhaps closed; nil while it is being replaced
	pending   *keyed  // connection that is being attached by the side that counts generations
	open      bool    // it is to have a stream: see grow
	replacing bool    // the stream is to be replaced although it is up
	suspect   bool    // the reason is that it makes no progress
	dialing   bool    // there is a dialer
	abandon   func()  // ends the dialer's current attempt
	spared    bool    // the last attempt was abandoned, so the next is not: a host that renews often still gets a stream
	flaps     int     // streams in a row that broke soon, before they carried anything
	since     time.Time
}

func newLink(m *Mesh, peer int, number uint64) *link {
	l := &link{mesh: m, peer: peer, number: number, out: outgoing{window: m.window},
		ackDue: time.NewTimer(time.Hour), watch: watch{timer: time.NewTimer(time.Hour)}}
	l.ackDue.Stop()
	l.watch.timer.Stop()
	l.ctx, l.cancel = context.WithCancel(m.ctx)
	for i := range m.cfg.Streams {
		l.slots = append(l.slots, &slot{link: l, index: i, kick: make(chan struct{}, 1)})
	}
	return l
}

// enter counts a goroutine that works for the link. It returns false if the link is closed.
func (l *link) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.wg.Add(1)
	return true
}

// send queues s and makes sure that a stream takes it. The caller writes a small segment itself if a stream is idle,
// and a large message between engines if nothing else is queued, which saves the latency of a wake-up. At most one writer is woken.
func (l *link) send(s *Segment) {
	n := len(s.Payload)
	if n > MaxPayload {
		panic(fmt.Sprintf("link: segment of %d bytes", n))
	}
	s.Length = uint32(n)
	s.state = segmentState{wire: s.Payload}
	if n > 0 && n <= CopyLimit {
		s.state.copy = l.mesh.copies.copyOf(s.Payload)
		s.state.wire = s.state.copy.data
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	small := n <= smallLimit
	if small {
		l.out.urgent.push(s)
	} else {
		l.out.bulk.push(s)
	}
	l.grow(n)
	l.dispatch(small, small || s.Kind == Control && l.out.waiting() == 1)
}

// dispatch passes queued segments to an idle stream, if there is one. direct says that none of them needs its Owner
// before it is written. mu is held, and released.
func (l *link) dispatch(small, direct bool) {
	st := l.takeIdle(small)
	switch {
	case st == nil:
		if !small && l.up > 0 {
			l.out.load.waits = true
		}
		l.mu.Unlock()
	case direct && st.direct != nil && !st.busy():
		limit := MaxPayload
		if small {
			limit = smallLimit
		}
		st.transmitDirect(limit)
	default:
		st.wake()
		l.mu.Unlock()
	}
}

// express is the stream that carries no large segments while there are others, so that a small one does not wait behind
// them, neither here nor in the socket. Small segments use other streams only while it is busy.
const express = 0

// takeIdle returns an idle stream, which the caller must use or wake; nil if there is none or nothing to do for it.
// Small segments use the first stream and large ones the last, so that they rarely meet.
func (l *link) takeIdle(small bool) *stream {
	idle := l.idle
	if !small {
		idle &^= l.resting
		if l.up > 1 {
			idle &^= 1 << express
		}
	}
	if idle == 0 {
		return nil
	}
	i := bits.Len64(idle) - 1
	if small {
		i = bits.TrailingZeros64(idle)
	}
	if !l.work(i) {
		return nil // no other stream would find more
	}
	l.idle &^= 1 << i
	return l.slots[i].stream
}

// limit is the longest payload that stream i carries.
func (l *link) limit(i int) int {
	if i == express && l.up > 1 || l.resting>>i&1 != 0 {
		return smallLimit
	}
	return MaxPayload
}

// work reports whether stream i would find something to do.
func (l *link) work(i int) bool {
	return l.acks.due || l.out.source(l.limit(i)) != nil
}

// wakeAll wakes writers for everything that is queued.
func (l *link) wakeAll() {
	for _, small := range [...]bool{true, false} {
		for n := l.out.waiting(); n > 0; n-- {
			st := l.takeIdle(small)
			if st == nil {
				break
			}
			st.wake()
		}
	}
}

// acknowledge processes an acknowledgement: the peer has everything below base and what the map lists from there on.
// Segments that are no longer in use go to done.
func (l *link) acknowledge(base uint64, received []uint64, done *queue) error {
	if base > l.out.win.next {
		return errNotSent
	}
	full, before := !l.out.room(), l.out.load.acked
	for seq := l.out.win.base; seq < base; seq++ {
		l.acked(seq, done)
	}
	for i, word := range received {
		for ; word != 0; word &= word - 1 {
			l.acked(base+uint64(i*64+bits.TrailingZeros64(word)), done)
		}
	}
	l.out.win.slide()
	if l.out.win.base >= l.width.awaited {
		l.width.blocked = time.Time{}
	}
	if l.out.load.counts() {
		l.out.load.progress(time.Since(l.mesh.born), l.out.load.acked != before, l.out.win.base, &l.stats)
	}
	if full && l.out.room() {
		l.wakeAll()
	}
	return nil
}

func (l *link) acked(seq uint64, done *queue) {
	s := l.out.win.take(seq)
	if s == nil {
		return
	}
	if st := l.slots[s.state.stream].stream; st != nil {
		st.progress++
		if len(s.state.wire) > smallLimit {
			st.timed(s)
		}
	}
	if len(s.state.wire) > smallLimit {
		l.width.choked, l.width.blocked = choked{}, time.Time{}
		l.out.load.acked += uint64(len(s.state.wire))
	}
	s.state.acked = true
	// The writer releases a segment that is queued or being written.
	if !s.state.writing && !s.state.queued {
		done.push(s)
	}
}

// notifyOwners notifies owners that the peer has their segments. No lock is held.
func (l *link) notifyOwners(done *queue) {
	if done.head == nil {
		return
	}
	for s := done.head; s != nil; {
		next := s.state.next
		if s.state.copy != nil {
			s.state.copy.release()
		}
		s.state = segmentState{}
		if s.Owner != nil {
			s.Owner.Acked(s)
		}
		s = next
	}
	*done = queue{}
	l.mesh.flushed.notify()
}

// lose gives the link up: the peer no longer has the other end.
func (l *link) lose(err error) {
	l.mu.Lock()
	if l.closed || l.lost != nil {
		l.mu.Unlock()
		return
	}
	l.lost = err
	l.shut(err)
	l.mu.Unlock()
	l.mesh.changed.notify()
	if f := l.mesh.cfg.Lost; f != nil {
		// On a goroutine of its own, so that it may call Forget, which waits for the link's goroutines.
		l.mesh.start(func() { f(l.peer, fmt.Errorf("link to host %d: %w", l.peer, err)) })
	}
}

// shut ends dialers and streams without waiting for them. mu is held.
func (l *link) shut(err error) {
	l.cancel()
	for _, sl := range l.slots {
		if sl.stream != nil {
			sl.stream.close(err)
		}
		if sl.pending != nil {
			sl.pending.Close()
		}
	}
}

// close ends the link and waits for its goroutines. Unacknowledged segments are dropped.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.shut(errClosed)
	l.mu.Unlock()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range []*queue{&l.out.bulk, &l.out.again, &l.out.urgent} {
		for q.head != nil {
			drop(q.pop())
		}
	}
	l.out.win.each(drop)
	l.out.win = sendWindow{}
}

func drop(s *Segment) {
	if s.state.copy != nil {
		s.state.copy.release()
	}
	s.state = segmentState{}
}

// empty reports whether the peer has everything that was sent, or will never have it.
func (l *link) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost != nil || l.out.win.held == 0 && l.out.queued() == 0
}

// keep flushes delayed acknowledgements and checks streams that make no progress. Both timers run only while needed.
func (l *link) keep() {
	defer l.wg.Done()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.ackDue.C:
			l.mu.Lock()
			l.acks.armed = false
			if l.acks.segments > 0 {
				l.acks.due = true
			}
			l.dispatch(true, true)
		case <-l.watch.timer.C:
			l.mu.Lock()
			l.watch.armed = false
			l.wakeRested(time.Since(l.mesh.born))
			if l.out.win.held > 0 && l.up > 0 {
				l.lookAfter(time.Now())
				l.rearmWatch()
			}
			l.mu.Unlock()
		}
	}
}

func (l *link) armWatch() {
	if !l.watch.armed {
		l.watch.since = time.Now()
		l.rearmWatch()
	}
}

func (l *link) rearmWatch() {
	l.watch.armed = true
	l.watch.timer.Reset(l.mesh.cfg.ProgressTimeout / watchParts)
}

// Progress is checked that many times in a ProgressTimeout. A peer that answers gets more time, one that seems gone
// gets less.
const (
	watchParts    = 16
	slowFactor    = 4
	silentDivisor = 4
)

// lookAfter replaces streams whose segments have made no progress for too long. If the peer's machine still answers,
// the peer is most likely just slow, and gets more time. If nothing at all comes from it, and its kernel does not
// answer retransmissions, the path is broken. TCP doubles its wait with every attempt, so it may notice late that the
// path has recovered, but repeated dialing gets through soon. A false alarm costs nothing: a stream that moves by then
// stays.
func (l *link) lookAfter(now time.Time) {
	held := uint64(0)
	l.out.win.each(func(s *Segment) { held |= 1 << s.state.stream })
	var stuck []*slot
	silent := now.Sub(l.mesh.born)-time.Duration(l.heard.Load()) >= l.mesh.cfg.ProgressTimeout/silentDivisor
	for _, sl := range l.slots {
		st := sl.stream
		switch {
		case st == nil || st.closed:
		case held>>sl.index&1 != 0 && !st.moves():
			stuck = append(stuck, sl)
		default:
			if held>>sl.index&1 != 0 {
				silent = false
				l.watch.moved = now
			}
			st.movedAt = now
			if sl.suspect { // it has recovered before it was replaced
				sl.suspect, sl.replacing = false, false
			}
		}
	}
	for _, sl := range stuck {
		still := min(now.Sub(sl.stream.movedAt), now.Sub(l.watch.since))
		timeout := l.mesh.cfg.ProgressTimeout
		switch {
		case sl.stream.pathState.answers:
			timeout *= slowFactor
		case silent && sl.stream.pathState.again:
			timeout /= silentDivisor
		}
		if !sl.replacing && still >= timeout {
			l.mesh.log.Debug("replace a stream that makes no progress", "peer", l.peer, "stream", sl.index, "for", still)
			sl.suspect, sl.replacing = true, true
			sl.redial(0)
			l.width.choked.note(sl, now)
		}
	}
	if l.width.choked.sure() && l.mesh.cfg.Narrow != nil {
		l.goNarrow()
	}
}
