package link

import "time"

// A stream may be much slower than the others of its link: its path loses packets, or shares a cable with somebody. A
// segment that it takes is then what all ranks wait for. So it rests from large segments, and is tried again with one
// of them later. That costs a small part of the time, whatever the speed.

const (
	slowSegment = 50 * time.Millisecond // what takes less is never too slow
	slowRatio   = 8                     // and it must take so many times longer than elsewhere
	slowInARow  = 2                     // which may be chance once
	costLasts   = time.Second           // how fast a stream was before that says nothing about now
	restFactor  = 64
	restLimit   = 30 * time.Second
)

// timed takes that a large segment was acknowledged. l.mu is held.
func (st *stream) timed(s *Segment) {
	l := st.link
	now := time.Since(l.mesh.born)
	if st.closed || s.state.at < st.timedAt {
		return // it was under way with the one before: a pause of the peer counts once
	}
	took := now - s.state.at
	st.timedAt = now
	st.cost = took.Seconds() / float64(len(s.state.wire))
	faster, rested := l.others(st, now)
	// What is for one of several networks may have no other stream.
	if took < slowSegment || !faster && !rested || l.bulk.count() > 1 {
		st.slow = 0
		return
	}
	if st.slow++; st.slow < slowInARow {
		return
	}
	l.mesh.log.Debug("a stream is slow and rests", "peer", l.peer, "stream", st.index, "took", took)
	if !faster { // those that rest may have become better than this one
		l.endRest(func(*stream) bool { return true })
	}
	l.resting |= 1 << st.index
	st.rest = now + min(restFactor*took, restLimit)
	l.wakeAll()
}

// others reports whether another stream that carries large segments is much faster, or was not tried for a while, and
// whether there are streams that would carry them if they did not rest.
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

// wakeRested lets streams carry large segments again that have rested enough. mu is held.
func (l *link) wakeRested(now time.Duration) {
	if l.resting == 0 {
		return
	}
	l.endRest(func(st *stream) bool { return now > st.rest })
	l.wakeAll()
}

// endRest ends the rest of the streams that have had enough. How they were is forgotten: what is slow now must not seem
// to be no worse than they were. mu is held.
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
