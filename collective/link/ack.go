package link

import "encoding/binary"

// acks is what the peer was not told yet. It is told on every header that goes out; on a header of its
// own when much has come, when the peer asked for it, or when nothing went out for a while.
type acks struct {
	segments int
	bytes    int
	now      bool // the peer asked
	due      bool // a writer is to send it alone, if need be
	armed    bool // link.ackDue runs
}

// owe notes that a segment was received.
func (a *acks) owe(h *Header) {
	a.segments++
	a.bytes += int(h.Length)
	a.now = a.now || h.Flags&FlagAckNow != 0
}

// paid notes that a header that goes out says it all.
func (a *acks) paid() { *a = acks{armed: a.armed} }

// pay sends an acknowledgement if it is time, or sets the timer. mu is held, and released.
func (l *link) pay() {
	a, cfg := &l.owed, &l.mesh.cfg
	switch {
	case a.segments == 0:
	case a.now || a.segments >= cfg.AckSegments || a.bytes >= cfg.AckBytes:
		a.due = true
		l.dispatch(true)
		return
	case !a.armed:
		a.armed = true
		l.ackDue.Reset(cfg.AckDelay)
	}
	l.mu.Unlock()
}

// ackFrame fills in a frame that carries nothing but acknowledgements, and its payload.
func (l *link) ackFrame(f *frame, payload []byte) []byte {
	*f = frame{Header: Header{Kind: kindAck}}
	payload = payload[:0]
	if l.got.beyond() {
		payload = l.got.appendMap(payload)
		for len(payload) > 0 && payload[len(payload)-1] == 0 {
			payload = payload[:len(payload)-1]
		}
	}
	f.Length = uint32(len(payload))
	return payload
}

// readMap turns the bytes of a map into words.
func readMap(words *[span / 64]uint64, b []byte) {
	var full [mapBytes]byte
	copy(full[:], b)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(full[i*8:])
	}
}
