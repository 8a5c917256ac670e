package link

import "time"

// load measures how much the path to a peer carries, from regular traffic. It counts only periods in which large
// segments wait for a stream, so that the path and not the sender sets the pace: from the first acknowledgement in
// such a period to the one of the last segment that waited. Data that a socket buffer accepts at once counts when the
// peer has it, not when it is written. link.mu guards it.
type load struct {
	acked uint64 // bytes of large segments that the peer has

	waits  bool   // a large segment found no free stream, and some still wait
	until  uint64 // once none waits: the number after the last one that did
	drains bool

	timed       bool // an acknowledgement has come: counting has started
	from, last  time.Duration
	first, most uint64 // acked at these times
}

// counts reports whether acknowledgements are significant now.
func (b *load) counts() bool { return b.waits || b.drains }

// drain records that no segment waits any more; end is the number after the last that did.
func (b *load) drain(end uint64) { b.waits, b.drains, b.until = false, true, end }

// progress records an acknowledgement; base is the first number that is not acknowledged. The period ends when what
// waited has arrived, even if the acknowledgement that says so brings only small segments: the next large one may come
// long after. It counts up to the last acknowledgement of large segments.
func (b *load) progress(now time.Duration, large bool, base uint64, stats *Totals) {
	if large {
		if !b.timed {
			b.timed, b.from, b.first = true, now, b.acked
		}
		b.last, b.most = now, b.acked
	}
	if b.waits || base < b.until {
		return
	}
	if b.timed {
		stats.BusyBytes += b.most - b.first
		stats.BusyTime += b.last - b.from
	}
	b.forget()
}

// forget drops what has not been counted yet.
func (b *load) forget() { *b = load{acked: b.acked} }
