package link

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// span is the maximum of segments in flight on a link; a receiver keeps track of as many.
const (
	span     = 4096
	mapBytes = span / 8
)

var (
	errBeyond  = errors.New("segment number is beyond the window")
	errNotSent = errors.New("peer acknowledges what was not sent")
)

// receiveWindow records which segments were received: all below base, and in the span after it the ones whose bit is
// set. Bit seq%span stands for seq.
type receiveWindow struct {
	base uint64
	bits [span / 64]uint64
}

// has reports whether seq was received. It fails if the peer could not have sent seq yet.
func (w *receiveWindow) has(seq uint64) (bool, error) {
	switch {
	case seq < w.base:
		return true, nil
	case seq-w.base >= span:
		return false, errBeyond
	}
	return w.bits[seq%span/64]>>(seq%64)&1 != 0, nil
}

// add records that seq was received. It must be new and within the span.
func (w *receiveWindow) add(seq uint64) {
	w.bits[seq%span/64] |= 1 << (seq % 64)
	for {
		word := &w.bits[w.base%span/64]
		// Full words are skipped at once; a bit is cleared as base passes it, to stand for base+span.
		n := bits.TrailingZeros64(^(*word >> (w.base % 64)))
		if n == 0 {
			return
		}
		*word &^= (1<<n - 1) << (w.base % 64)
		w.base += uint64(n)
		if w.base%64 != 0 {
			return
		}
	}
}

// sack returns which of the 32 segments after base were received; base itself never is.
func (w *receiveWindow) sack() uint32 {
	return uint32(w.word(w.base + 1))
}

// word returns 64 bits of the map, from seq on. Bits of the span before wrap around to what is 0.
func (w *receiveWindow) word(seq uint64) uint64 {
	i, shift := seq%span/64, seq%64
	v := w.bits[i] >> shift
	if shift != 0 {
		v |= w.bits[(i+1)%(span/64)] << (64 - shift)
	}
	return v
}

// appendMap appends mapBytes bytes; bit i is set if base+i was received.
func (w *receiveWindow) appendMap(dst []byte) []byte {
	for i := uint64(0); i < span; i += 64 {
		dst = binary.LittleEndian.AppendUint64(dst, w.word(w.base+i))
	}
	return dst
}

// beyond reports whether the map has more bits than sack.
func (w *receiveWindow) beyond() bool {
	if w.word(w.base+1)>>32 != 0 {
		return true
	}
	for i := uint64(65); i < span; i += 64 {
		if w.word(w.base+i) != 0 {
			return true
		}
	}
	return false
}

// sendWindow holds the segments that were numbered and not acknowledged: some of [base, next).
type sendWindow struct {
	base, next uint64
	ring       [span]*Segment
	held       int
}

// add numbers s. There must be room: next-base < span.
func (w *sendWindow) add(s *Segment) {
	s.state.seq = w.next
	w.ring[w.next%span] = s
	w.next++
	w.held++
}

// take removes and returns the segment seq, nil if it was acknowledged before.
func (w *sendWindow) take(seq uint64) *Segment {
	if seq < w.base || seq >= w.next {
		return nil
	}
	s := w.ring[seq%span]
	if s != nil {
		w.ring[seq%span] = nil
		w.held--
	}
	return s
}

// slide moves base to the first segment that is not acknowledged.
func (w *sendWindow) slide() {
	for w.base < w.next && w.ring[w.base%span] == nil {
		w.base++
	}
}

// each calls f for the segments held, in order.
func (w *sendWindow) each(f func(*Segment)) {
	for seq := w.base; seq < w.next; seq++ {
		if s := w.ring[seq%span]; s != nil {
			f(s)
		}
	}
}
