package link

import "time"

// load finds out how much the way to a peer carries, from what is sent anyway. Only times count in which large
// segments wait for a stream, so that it is the way, and not the sender, that sets the pace: from the first
// acknowledgement then to that of the last segment that waited. What stream buffers take at once is counted when the
// peer has it, not when it is written. It is guarded by link.mu.
type load struct {
	acked uint64 // bytes of large segments that the peer has

	waits  bool   // a large segment found no stream to take it, and some still wait
	until  uint64 // once none waits: the first number behind those that did
	drains bool

	timed       bool // an acknowledgement has come: from then on it counts
	from, last  time.Duration
	first, most uint64 // acked at these times
}

// counts reports whether acknowledgements tell something.
func (b *load) counts() bool { return b.waits || b.drains }

// drain notes that no segment waits any more; end is the number behind the last that did.
func (b *load) drain(end uint64) { b.waits, b.drains, b.until = false, true, end }

// progress notes that something was acknowledged; base is the first number that was not.
func (b *load) progress(now time.Duration, base uint64, stats *counters) {
	if !b.timed {
		b.timed, b.from, b.first = true, now, b.acked
	}
	b.last, b.most = now, b.acked
	if b.waits || base < b.until {
		return
	}
	stats.busyBytes += b.most - b.first
	stats.busyTime += b.last - b.from
	b.forget()
}

// forget drops what was not counted yet.
func (b *load) forget() { *b = load{acked: b.acked} }
