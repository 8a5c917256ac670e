package link

import (
	"crypto/tls"
	"net"
	"syscall"
)

// Streams inside TLS, if the mesh is configured for it. Nothing else changes: the proofs still bind a stream to its
// link, and resumption repeats a segment whose record was cut off.

// sealed is a connection inside TLS.
type sealed struct{ *tls.Conn }

// Close closes the socket. TLS would send a close message first, and wait for a peer that may be silent.
func (c sealed) Close() error { return c.NetConn().Close() }

// seal puts a new connection into TLS. The handshake comes with the first byte that is read or written.
func (m *Mesh) seal(conn net.Conn, dialed bool) net.Conn {
	switch {
	case m.cfg.TLS == nil:
		return conn
	case dialed:
		return sealed{tls.Client(conn, m.cfg.TLS)}
	}
	return sealed{tls.Server(conn, m.cfg.TLS)}
}

// socketOf returns the socket below a connection, nil if there is none.
func socketOf(conn net.Conn) syscall.RawConn {
	if s, ok := conn.(sealed); ok {
		conn = s.NetConn()
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// recordSize is the most that a TLS record holds.
const recordSize = 16 << 10

// writeRecords writes pieces in full records as far as possible: each record is a system call.
func (st *stream) writeRecords(pieces [][]byte) error {
	b := st.out.flat[:0]
	for _, p := range pieces {
		for len(p) > 0 {
			if whole := len(p) / recordSize * recordSize; len(b) == 0 && whole > 0 {
				if _, err := st.conn.Write(p[:whole]); err != nil {
					return err
				}
				p = p[whole:]
				continue
			}
			n := min(recordSize-len(b), len(p))
			b, p = append(b, p[:n]...), p[n:]
			if len(b) == recordSize {
				if _, err := st.conn.Write(b); err != nil {
					return err
				}
				b = b[:0]
			}
		}
	}
	st.out.flat = b
	if len(b) == 0 {
		return nil
	}
	_, err := st.conn.Write(b)
	return err
}
