package link

import (
	"context"
	"net"
	"time"
)

// A path between two hosts may lose large packets silently: both ends send frames of 9000 bytes and a switch between
// them does not, or a tunnel takes its share of each packet and a firewall drops the router's ICMP messages. TCP then
// connects, and is stuck with the first full segment. The link opens its streams again with segments that fit
// any path.

// narrowPackets are the sizes that such streams keep to, with headers, in bytes: every path over IPv6 has to carry the first, and
// every path over IPv4 carries the second by custom. Where that is lost too, the link carries nothing: see Mesh.Awaited.
var narrowPackets = [...]int{1280, 576}

// choked tells such a path from a broken one: a stream comes up, which takes small packets in both directions,
// after another was stuck, and is stuck itself before any of its segments has arrived.
type choked struct {
	times int
	at    time.Time // the last
	bytes int       // packets that the kernel took for fit
	conn  net.Conn
}

// Narrowing reports that packets to a peer are lost because of their size.
type Narrowing struct {
	Peer          int
	Lost          int      // bytes of those packets, with headers
	On            int      // bytes of the packets that the link goes on with; 0 if there is no smaller size, so that no data passes
	Local, Remote net.Addr // of a stream
}

// note takes a stream that is to be replaced because nothing of it moves.
func (c *choked) note(sl *slot, now time.Time) {
	st := sl.stream
	if st.progress > 0 || !st.way.again || sl.since.Before(c.at) {
		return
	}
	c.times, c.at, c.bytes, c.conn = c.times+1, now, st.way.packet, st.conn
}

func (c *choked) sure() bool { return c.times > 1 }

// narrower is the size to go on with where packets of so many bytes are lost, 0 if there is none.
func narrower(bytes int) int {
	for _, n := range narrowPackets {
		if n < bytes {
			return n
		}
	}
	return 0
}

// goNarrow replaces all streams by narrower ones, or notes that there are none. mu is held.
func (l *link) goNarrow() {
	conn := l.choked.conn
	lost := l.choked.bytes
	if l.narrow > 0 {
		lost = min(lost, l.narrow)
	}
	on := narrower(lost)
	l.choked = choked{}
	switch {
	case on > 0:
		l.narrow = on
		l.renewLocked(func(*stream) bool { return true })
	case l.blocked.IsZero():
		l.blocked, l.awaited = time.Now(), l.win.next
	default:
		return // that is known
	}
	if f := l.mesh.cfg.Narrowed; f != nil {
		n := Narrowing{Peer: l.peer, Lost: lost, On: on, Local: conn.LocalAddr(), Remote: conn.RemoteAddr()}
		l.mesh.start(func() { f(n) }) // it may ask for what mu guards
	}
}

// open opens the next connection for a stream.
func (l *link) open(ctx context.Context, stream int) (net.Conn, error) {
	l.mu.Lock()
	narrow := l.narrow
	l.mu.Unlock()
	if narrow > 0 {
		return l.mesh.cfg.Narrow(ctx, l.peer, stream, narrow)
	}
	return l.mesh.cfg.Dial(ctx, l.peer, stream)
}
