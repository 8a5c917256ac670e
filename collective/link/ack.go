package link

import "encoding/binary"

// acks tracks what has not been acknowledged to the peer. Every outgoing header acknowledges it; a header of its own
// does so when much has arrived, when the peer asked for it, or when nothing was sent for a while.
type acks struct {
	segments int
	bytes    int
	now      bool // the peer asked for it
	due      bool // a writer must send it by itself if nothing else is sent
	armed    bool // link.ackDue runs
}

// add records a received segment.
func (a *acks) add(h *Header) {
	a.segments++
	a.bytes += int(h.Length)
	a.now = a.now || h.Flags&FlagAckNow != 0
}

// clear records that an outgoing header acknowledges everything.
func (a *acks) clear() { *a = acks{armed: a.armed} }

// flushAcks sends an acknowledgement if it is due, or sets the timer. mu is held, and released.
func (l *link) flushAcks() {
	a, cfg := &l.acks, &l.mesh.cfg
	switch {
	case a.segments == 0:
	case a.now || a.segments >= cfg.AckSegments || a.bytes >= cfg.AckBytes:
		a.due = true
		l.dispatch(true, true)
		return
	case !a.armed:
		a.armed = true
		l.ackDue.Reset(cfg.AckDelay)
	}
	l.mu.Unlock()
}

// ackFrame fills in a frame that carries only acknowledgements, and its payload.
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
