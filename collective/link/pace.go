package link

import "time"

// A stream may be much slower than the others of its link: its path loses packets or shares a cable. All ranks then
// wait for the segments it takes. So it rests from large segments, and is tried again with one of them later. That
// costs a small part of the time, whatever the speed.

const (
	slowSegment = 50 * time.Millisecond // a faster segment is never too slow
	slowRatio   = 8                     // too slow is that many times slower than elsewhere
	slowInARow  = 2                     // a single slow one may be chance
	costLasts   = time.Second           // how long the last speed of a stream is considered valid
	restFactor  = 64
	restLimit   = 30 * time.Second
)

// timed measures the acknowledgement of a large segment. l.mu is held.
func (st *stream) timed(s *Segment) {
	l := st.link
	now := time.Since(l.mesh.born)
	if st.closed || s.state.at < st.timedAt {
		return // it was in flight with the previous one: a pause of the peer counts once
	}
	took := now - s.state.at
	st.timedAt = now
	st.cost = took.Seconds() / float64(len(s.state.wire))
	faster, rested := l.others(st, now)
	if took < slowSegment || !faster && !rested {
		st.slow = 0
		return
	}
	if st.slow++; st.slow < slowInARow {
		return
	}
	l.mesh.log.Debug("a stream is slow and rests", "peer", l.peer, "stream", st.index, "took", took)
	if !faster { // the resting ones may have become better than this one
		l.endRest(func(*stream) bool { return true })
	}
	l.resting |= 1 << st.index
	st.rest = now + min(restFactor*took, restLimit)
	l.wakeAll()
}

// others reports whether another stream for large segments is much faster or has not been tried for a while, and
// whether streams are resting that could carry them.
func (l *link) others(st *stream, now time.Duration) (faster, rested bool) {
	busy := false
	for i, sl := range l.slots {
		other := sl.stream
		switch {
		case other == nil || other == st || other.closed || i == express:
		case l.resting>>i&1 != 0:
			rested = true
		default:
			busy = true
			faster = faster || now-other.timedAt > costLasts || other.cost*slowRatio < st.cost
		}
	}
	return faster, rested && !busy
}

// wakeRested lets streams carry large segments again after their rest. mu is held.
func (l *link) wakeRested(now time.Duration) {
	if l.resting == 0 {
		return
	}
	l.endRest(func(st *stream) bool { return now > st.rest })
	l.wakeAll()
}

// endRest ends the rest of the streams that have had enough, and forgets their speeds, so that a stream that is slow
// now does not seem just as good. mu is held.
func (l *link) endRest(enough func(*stream) bool) {
	for i, sl := range l.slots {
		st := sl.stream
		if l.resting>>i&1 == 0 || st != nil && !enough(st) {
			continue
		}
		l.resting &^= 1 << i
		if st != nil {
			st.cost = 0
		}
	}
}
