package link

import (
	"net"
	"time"
)

// The sending side. One writev per large segment, or per batch of small ones; at most one wake-up per Send. Nothing is
// allocated: the arrays below belong to the stream, and net.Buffers consumes a slice of them.

// output is what a stream writes at a time. It belongs to the owner of the stream, see stream.
type output struct {
	batch  [maxBatch]*Segment
	n      int // segments in batch
	frames [maxBatch]frame
	ack    bool   // there is only an acknowledgement, in frames[0]
	acks   []byte // its payload
	header [headerSize]byte
	heads  [maxBatch][headSize + tagSize]byte
	iov    [2 * maxBatch][]byte
	bufs   net.Buffers
	flat   []byte    // small frames in one piece, or the header of a large one, for direct; what is encrypted
	rest   [2][]byte // what direct could not write, of flat and of the payload after it
	done   queue     // acknowledged segments whose owners are to be notified
}

// transmit is the writer.
func (st *stream) transmit() error {
	l, o := st.link, &st.out
	var pinned *func(stream int)
	l.mu.Lock()
	for {
		switch {
		case o.done.head != nil:
			l.mu.Unlock()
			l.notifyOwners(&o.done)
			l.mu.Lock()
		case st.closed:
			l.mu.Unlock()
			return st.err
		case len(o.rest[1]) > 0 || len(o.rest[0]) > 0:
			l.mu.Unlock()
			o.bufs = append(o.iov[:0], o.rest[0], o.rest[1])
			_, err := o.bufs.WriteTo(st.conn)
			o.rest = [2][]byte{}
			if err != nil {
				return err
			}
			l.mu.Lock()
		case st.take(l.limit(st.index)):
			l.mu.Unlock()
			st.pin(&pinned)
			err := st.write()
			l.mu.Lock()
			st.wrote()
			if err != nil && !st.closed {
				l.mu.Unlock()
				l.notifyOwners(&o.done)
				return err
			}
		case o.done.head == nil:
			st.awake = false
			l.idle |= 1 << st.index
			for !st.awake && (!st.closed || st.lent) {
				st.cond.Wait()
			}
		}
	}
}

// take fills the batch with what is sent next, with payloads of at most limit bytes; false if there is nothing. l.mu is
// held.
func (st *stream) take(limit int) bool {
	l, o := st.link, &st.out
	o.n, o.ack = 0, false
	for o.n < maxBatch {
		s := l.out.next(limit, &o.done)
		if s == nil {
			break
		}
		if s.state.again {
			l.stats.ResentSegments++
			l.stats.ResentBytes += uint64(s.Length)
		} else {
			l.out.win.add(s)
			l.stats.SentBytes += uint64(s.Length)
			if st.upgraded != nil {
				l.stats.UpgradedBytes += uint64(s.Length)
			}
		}
		s.state.stream, s.state.writing = st.index, true
		o.batch[o.n] = s
		o.n++
		if len(s.state.wire) > smallLimit {
			s.state.at = time.Since(l.mesh.born)
			break
		}
		limit = min(limit, smallLimit)
	}
	switch {
	case o.n > 0:
		l.armWatch()
	case l.acks.due:
		o.ack = true
		o.acks = l.ackFrame(&o.frames[0], o.acks)
	default:
		return false
	}
	base, sack := l.got.base, l.got.sack()
	for i := range max(o.n, 1) {
		f := &o.frames[i]
		if i < o.n {
			s := o.batch[i]
			*f = frame{Header: s.Header, seq: s.state.seq}
		}
		f.ack, f.sack = base, sack
	}
	l.acks.clear()
	return true
}

// wrote releases the batch: whatever the result, only acknowledgements count from here. l.mu is held.
func (st *stream) wrote() {
	o := &st.out
	for i, s := range o.batch[:o.n] {
		s.state.writing, s.state.again = false, false
		if s.state.acked {
			o.done.push(s)
		}
		o.batch[i] = nil
	}
	o.n = 0
}

// write prepares and writes the batch.
func (st *stream) write() error {
	o := &st.out
	for _, s := range o.batch[:o.n] {
		if !s.state.prepared {
			s.state.prepared = true
			if s.state.copy == nil && s.Kind != Control && s.Owner != nil && len(s.state.wire) > 0 {
				s.Owner.Prepare(s)
			}
		}
	}
	if st.sends.encrypt {
		return st.writeEncrypted()
	}
	iov := o.iov[:0]
	if o.ack {
		iov = append(iov, st.head(o.heads[0][:0], 0, o.acks), o.acks)
	}
	for i, s := range o.batch[:o.n] {
		iov = append(iov, st.head(o.heads[i][:0], i, s.state.wire))
		if len(s.state.wire) > 0 {
			iov = append(iov, s.state.wire)
		}
	}
	var err error
	if st.upgraded != nil {
		err = st.upgraded.WriteBuffers(iov)
	} else {
		o.bufs = iov
		_, err = o.bufs.WriteTo(st.conn)
	}
	clear(iov)
	return err
}

// writeEncrypted writes the batch, a few records at a time: the peer decrypts them while this side encrypts the next.
func (st *stream) writeEncrypted() error {
	o := &st.out
	o.flat = o.flat[:0]
	if o.ack {
		o.flat = st.frame(o.flat, 0, o.acks)
	}
	for i, s := range o.batch[:o.n] {
		o.flat = st.head(o.flat, i, s.state.wire)
		for rest := s.state.wire; len(rest) > 0; {
			n := min(len(rest), recordSize)
			o.flat = st.sends.seal(o.flat, rest[:n])
			if rest = rest[n:]; len(o.flat) > writeSize {
				if _, err := st.conn.Write(o.flat); err != nil {
					return err
				}
				o.flat = o.flat[:0]
			}
		}
	}
	_, err := st.conn.Write(o.flat)
	return err
}

// head appends the header of frame i and, unless its payload is encrypted, the payload's tag if it is to have one.
func (st *stream) head(out []byte, i int, payload []byte) []byte {
	o, f := &st.out, &st.out.frames[i]
	f.Flags &^= flagChecked
	if f.mustCheck() || len(payload) > 0 && (st.sends.encrypt || st.link.mesh.cfg.Check) {
		f.Flags |= flagChecked
	}
	f.encode(&o.header)
	out = st.sends.seal(out, o.header[:])
	if f.Flags&flagChecked != 0 && !st.sends.encrypt {
		out = st.sends.tag(out, payload)
	}
	return out
}

// frame appends a whole frame.
func (st *stream) frame(out []byte, i int, payload []byte) []byte {
	out = st.head(out, i, payload)
	if !st.sends.encrypt {
		return append(out, payload...)
	}
	for len(payload) > 0 {
		n := min(len(payload), recordSize)
		out = st.sends.seal(out, payload[:n])
		payload = payload[n:]
	}
	return out
}

// transmitDirect writes segments or an acknowledgement on the caller's goroutine, as far as the socket accepts them
// without blocking; the writer is woken only for the rest. The caller owns the stream and holds l.mu, which is
// released. It never calls an Owner.
func (st *stream) transmitDirect(limit int) {
	l, o := st.link, &st.out
	if st.take(min(limit, l.limit(st.index))) {
		st.lent = true
		l.mu.Unlock()
		err := st.writeDirect()
		l.mu.Lock()
		st.wrote()
		if err != nil {
			l.mu.Unlock()
			st.fail(err)
			l.mu.Lock()
		}
		st.lent = false
	}
	if !st.closed && len(o.rest[0])+len(o.rest[1]) == 0 && o.done.head == nil && !l.work(st.index) {
		l.idle |= 1 << st.index
	} else {
		st.wake()
	}
	l.mu.Unlock()
}

// busy reports whether the stream was written directly a moment ago. More may follow then, and the writer, once awake,
// puts everything that arrives meanwhile into one call.
func (st *stream) busy() bool {
	last := st.directAt
	st.directAt = time.Since(st.link.mesh.born)
	return last != 0 && st.directAt-last < burst
}

func (st *stream) writeDirect() error {
	o := &st.out
	b, large := o.flat[:0], []byte(nil)
	if o.ack {
		b = st.frame(b, 0, o.acks)
	}
	for i, s := range o.batch[:o.n] {
		s.state.prepared = true
		if len(s.state.wire) > smallLimit && !st.sends.encrypt { // the last one
			b, large = st.head(b, i, s.state.wire), s.state.wire
		} else {
			b = st.frame(b, i, s.state.wire)
		}
	}
	o.flat = b
	n, err := st.direct(b, large)
	o.rest = [2][]byte{b[min(n, len(b)):], large[max(n-len(b), 0):]}
	return err
}
