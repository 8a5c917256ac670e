package link

import (
	"context"
	"net"
	"time"
)

// A path between two hosts may silently lose large packets: both ends send frames of 9000 bytes and a switch between
// them does not, or a tunnel reduces the packet size and a firewall drops the router's ICMP messages. TCP then
// connects, and hangs with the first full segment. The link reopens its streams with segments that fit any path.

// narrowPackets are the packet sizes of such streams, with headers, in bytes: every IPv6 path must carry the first, and
// every IPv4 path carries the second by convention. Where that is lost too, the link carries nothing: see Mesh.Awaited.
var narrowPackets = [...]int{1280, 576}

// choked distinguishes such a path from a broken one: after another stream hung, a stream is opened, which takes small
// packets in both directions, and hangs itself before any of its segments has arrived.
type choked struct {
	times int
	at    time.Time // when one last hung
	bytes int       // packet size that the kernel considered safe
	conn  net.Conn
}

// width is how large the packets are that reach the peer, as far as the link knows. link.mu guards it.
type width struct {
	narrow  int       // largest packet of new streams, which Config.Narrow opens; 0 for Dial
	blocked time.Time // when the link found that only packets too small for data pass; zero if larger ones do
	awaited uint64    // while blocked: the first number after the segments that were in flight then
	choked  choked
}

// Narrowing reports that packets to a peer are lost because of their size.
type Narrowing struct {
	Peer          int
	Lost          int      // bytes of those packets, with headers
	On            int      // size of the packets that the link continues with; 0 if even the smallest ones are lost
	Local, Remote net.Addr // of a stream
}

// note records a stream that is being replaced for lack of progress.
func (c *choked) note(sl *slot, now time.Time) {
	st := sl.stream
	if st.progress > 0 || !st.pathState.again || sl.since.Before(c.at) {
		return
	}
	c.times, c.at, c.bytes, c.conn = c.times+1, now, st.pathState.packet, st.conn
}

func (c *choked) sure() bool { return c.times > 1 }

// narrower returns the next smaller packet size, 0 if there is none.
func narrower(bytes int) int {
	for _, n := range narrowPackets {
		if n < bytes {
			return n
		}
	}
	return 0
}

// goNarrow replaces all streams with narrower ones, or records that there is no smaller size. mu is held.
func (l *link) goNarrow() {
	w := &l.width
	conn := w.choked.conn
	lost := w.choked.bytes
	if w.narrow > 0 {
		lost = min(lost, w.narrow)
	}
	on := narrower(lost)
	w.choked = choked{}
	switch {
	case on > 0:
		w.narrow = on
		l.renewLocked(func(*stream) bool { return true })
	case w.blocked.IsZero():
		w.blocked, w.awaited = time.Now(), l.out.win.next
	default:
		return // already known
	}
	if f := l.mesh.cfg.Narrowed; f != nil {
		n := Narrowing{Peer: l.peer, Lost: lost, On: on, Local: conn.LocalAddr(), Remote: conn.RemoteAddr()}
		l.mesh.start(func() { f(n) }) // it may need mu
	}
}

// open opens the next connection for a stream.
func (l *link) open(ctx context.Context, stream int) (net.Conn, error) {
	l.mu.Lock()
	narrow := l.width.narrow
	l.mu.Unlock()
	if narrow > 0 {
		return l.mesh.cfg.Narrow(ctx, l.peer, stream, narrow)
	}
	return l.mesh.cfg.Dial(ctx, l.peer, stream)
}
