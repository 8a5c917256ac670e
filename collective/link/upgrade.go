package link

import (
	"context"
	"net"
	"time"
)

// A stream opens as a TCP connection, over which both sides prove who they are. After that something else may carry its
// bytes (Config.Upgrade). Everything above stays as it is: the other carrier breaks as a connection does, and the next
// connection for the stream may stay what it is.

// Upgraded is a connection from Config.Upgrade that does more than a net.Conn.
type Upgraded interface {
	net.Conn
	// WriteBuffers writes all buffers, and may change the slice.
	WriteBuffers([][]byte) error
	// WriteNow writes what it can without waiting, first of a and then of b. It is not called beside another write.
	WriteNow(a, b []byte) (int, error)
	// Delivered counts the bytes that have arrived at the peer, even if the peer has not read them yet, and reports
	// whether these are all that were written.
	Delivered() (bytes uint64, all bool)
	// RTT returns the shortest round trip so far, 0 if it is unknown.
	RTT() time.Duration
}

// upgrade has Config.Upgrade choose what carries a stream, if both sides have it, and returns that with the same keys.
func (m *Mesh) upgrade(ctx context.Context, conn *keyed, peer, stream int, offered bool) (*keyed, error) {
	if m.cfg.Upgrade == nil || !offered {
		return conn, nil
	}
	carrier, err := m.cfg.Upgrade(ctx, conn, peer, stream)
	if err != nil || carrier == net.Conn(conn) {
		return conn, err
	}
	carrier.SetDeadline(time.Now().Add(m.cfg.HandshakeTimeout)) // of the rest of the handshake
	conn.SetDeadline(time.Time{})
	_, sends, receives := conn.hand()
	return &keyed{Conn: carrier, sends: sends, receives: receives}, nil
}

// reopen replaces a stream that is a plain connection. An attempt under way goes on: callers that ask
// again before it succeeds would otherwise never get a stream.
func (l *link) reopen(index int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if index < len(l.slots) && !l.slots[index].dialing {
		l.renewLocked(func(st *stream) bool { return st != nil && st.index == index && st.upgraded == nil })
	}
}
