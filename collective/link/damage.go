package link

import (
	"errors"
	"net"
)

// Data may be damaged unnoticed by TCP: in a NIC, a switch or a hypervisor that computes the checksum of a segment
// after it has changed the data, or changes it in a way that leaves the sum unchanged. The tags of records find that, and
// find what somebody on the path has changed; they do not tell the two apart. After such a record nothing on the stream
// can be trusted, so the stream is replaced, and the next one repeats what the peer lacks.

// Damage reports damaged data from a peer.
type Damage struct {
	Peer          int
	Local, Remote net.Addr // of the stream
	Times         uint64   // how often that has happened on the link
}

// damage counts damage on conn, and calls Config.Damaged. mu is held.
func (l *link) damage(conn net.Conn) {
	l.stats.Damaged++
	if f := l.mesh.cfg.Damaged; f != nil {
		d := Damage{Peer: l.peer, Local: conn.LocalAddr(), Remote: conn.RemoteAddr(), Times: l.stats.Damaged}
		l.mesh.start(func() { f(d) }) // it may need mu
	}
}

// damagedHandshake counts a handshake with the peer that failed because of damage.
func (l *link) damagedHandshake(conn net.Conn, err error) {
	if errors.Is(err, errDamaged) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.damage(conn)
	}
}
