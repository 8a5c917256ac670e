package link

import (
	"crypto/tls"
	"errors"
	"net"
)

// Data may be damaged where TCP does not look: in a NIC, a switch or a hypervisor that computes the checksum of a segment after it has
// changed the data, or changes it in a way that leaves the sum as it was. A checksum of the link's own finds it. After a
// damaged frame nothing on the stream can be trusted, so the stream is replaced, and the next one carries again what the peer lacks.

// Damage describes data that came damaged from a peer.
type Damage struct {
	Peer          int
	Local, Remote net.Addr // of the stream
	Times         uint64   // how often that has happened on the link
}

// damaged reports whether a stream broke because its data was damaged.
func damaged(err error) bool {
	// Inside TLS, this side refuses what an authenticated peer has sent only if it is damaged.
	var refused *net.OpError
	var record tls.RecordHeaderError
	return errors.Is(err, errChecksum) || errors.As(err, &refused) && refused.Op == "local error" || errors.As(err, &record)
}

// damage counts what came damaged over conn, and calls Config.Damaged. mu is held.
func (l *link) damage(conn net.Conn) {
	l.stats.damaged++
	if f := l.mesh.cfg.Damaged; f != nil {
		d := Damage{Peer: l.peer, Local: conn.LocalAddr(), Remote: conn.RemoteAddr(), Times: l.stats.damaged}
		l.mesh.start(func() { f(d) }) // it may ask for what mu guards
	}
}

// damagedHandshake counts a handshake with the peer that ended because of damage.
func (l *link) damagedHandshake(conn net.Conn, err error) {
	if errors.Is(err, errChecksum) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.damage(conn)
	}
}
