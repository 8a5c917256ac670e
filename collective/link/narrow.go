package link

import (
	"context"
	"net"
	"time"
)

// A way between two hosts may lose large packets without a word: both ends send frames of 9000 bytes and a switch between
// them does not, or a tunnel takes its share of each packet and the router that should tell so is not heard. TCP then
// comes up, and is stuck with the first full segment. The streams of such a link are opened again with segments that fit
// any way.

// NarrowPacket is what every way carries, by the rules of IPv6: with headers, in bytes.
const NarrowPacket = 1280

// NarrowSegment is the TCP segment that fits into it.
const NarrowSegment = NarrowPacket - 60

// choked is what tells such a way from one that is broken: a stream comes up, which takes small packets in both directions,
// after another was stuck, and is stuck itself before any of its segments has arrived.
type choked struct {
	times int
	at    time.Time // the last
	bytes int       // packets that the kernel took for fit
}

// note takes a stream that is to be replaced because nothing of it moves.
func (c *choked) note(sl *slot, now time.Time) {
	st := sl.stream
	if st.progress > 0 || !st.way.again || st.way.packet <= NarrowPacket || sl.since.Before(c.at) {
		return
	}
	c.times, c.at, c.bytes = c.times+1, now, st.way.packet
}

func (c *choked) sure() bool { return c.times > 1 }

// goNarrow replaces all streams by narrow ones. mu is held.
func (l *link) goNarrow() {
	l.narrow = true
	l.renewLocked(func(*stream) bool { return true })
	if f, bytes := l.mesh.cfg.Narrowed, l.choked.bytes; f != nil {
		l.mesh.start(func() { f(l.peer, bytes) }) // it may ask for what mu guards
	}
}

// dialer returns what opens the next stream.
func (l *link) dialer() func(ctx context.Context, peer, stream int) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.narrow {
		return l.mesh.cfg.Narrow
	}
	return l.mesh.cfg.Dial
}
