package link

import (
	"fmt"
	"time"
)

// The receiving side. A small segment is delivered from the read buffer or copied from there once; a large one is read
// into its destination, with one system call if it arrives faster than it is read. The lock is taken three times per
// segment, and nothing is allocated.

// receive is the reader.
func (st *stream) receive() error {
	r := receiver{stream: st, link: st.link, in: &st.in, handler: st.link.mesh.cfg.Handler}
	defer r.scratch.free()
	var pinned *func(stream int)
	for {
		if st.pin(&pinned) {
			r.scratch.free() // it is on the NUMA node where the reader ran until now
		}
		head, err := r.in.peek(headSize)
		if err == nil {
			r.in.use(headSize)
			head, err = st.receives.open(head, head)
		}
		if err == nil {
			err = r.frame.decode((*[headerSize]byte)(head))
		}
		if err != nil {
			return err
		}
		if r.frame.Kind == kindAck {
			err = r.acknowledgement()
		} else {
			err = r.segment()
		}
		if err != nil {
			return err
		}
	}
}

type receiver struct {
	stream  *stream
	link    *link
	in      *input
	handler Handler
	frame   frame
	words   [span / 64]uint64 // scratch: what the peer acknowledges
	tag     [tagSize]byte     // of the payload
	scratch scratch
	done    queue
}

func (r *receiver) acknowledgement() error {
	l, f := r.link, &r.frame
	received := r.words[:1]
	received[0] = uint64(f.sack) << 1
	if f.Length > 0 {
		b, err := r.payload(nil, int(f.Length))
		if err != nil {
			return err
		}
		readMap(&r.words, b)
		received = r.words[:]
	}
	l.mu.Lock()
	err := l.acknowledge(f.ack, received, &r.done)
	l.mu.Unlock()
	l.notifyOwners(&r.done)
	return err
}

func (r *receiver) segment() error {
	l, f := r.link, &r.frame
	n := int(f.Length)
	r.words[0] = uint64(f.sack) << 1
	l.mu.Lock()
	known, err := l.got.has(f.seq)
	if err == nil {
		err = l.acknowledge(f.ack, r.words[:1], &r.done)
	}
	if known {
		l.acks.add(&f.Header)
	}
	l.mu.Unlock()
	l.notifyOwners(&r.done)
	if err != nil {
		return err
	}
	if known {
		if err := r.skip(n); err != nil {
			return err
		}
		l.mu.Lock()
		l.flushAcks()
		return nil
	}

	h := f.Header
	h.Flags &^= flagChecked
	dst, refused := r.handler.Place(l.peer, h)
	var payload []byte
	if refused != nil {
		err = r.skip(n)
	} else {
		payload, err = r.payload(dst, n)
	}
	if err != nil {
		return err
	}

	l.mu.Lock()
	// The old stream of a slot has ended before its segments are repeated, so there should be no duplicate here; but if
	// there is one, it must not be delivered twice.
	if known, _ = l.got.has(f.seq); !known {
		r.stream.took++
		l.got.add(f.seq)
		l.acks.add(&h)
	}
	l.mu.Unlock()
	if refused == nil && !known {
		r.handler.Deliver(l.peer, h, payload)
	}

	l.mu.Lock()
	l.flushAcks()
	return nil
}

// payload reads n bytes to their destination. Without a dst they stay in the read buffer if they fit. Either way they
// are valid until the next read.
func (r *receiver) payload(dst []byte, n int) ([]byte, error) {
	in, keys, checked := r.in, &r.stream.receives, r.frame.Flags&flagChecked != 0
	in.fill = readBuffer
	if dst != nil && len(dst) != n {
		panic(fmt.Sprintf("link: Place returned %d bytes for a segment of %d", len(dst), n))
	}
	if n == 0 {
		return dst, nil
	}
	if keys.encrypt {
		return r.decrypt(dst, n)
	}
	if checked {
		tag, err := in.peek(tagSize)
		if err != nil {
			return nil, err
		}
		copy(r.tag[:], tag)
		in.use(tagSize)
	}
	var err error
	if dst == nil && n <= readBuffer-headSize {
		if dst, err = in.peek(n); err == nil {
			in.use(n)
		}
	} else {
		if dst == nil {
			dst = r.scratch.take(n)
		}
		if n > readBuffer {
			in.fill = headFill
		}
		err = in.full(dst)
	}
	if err == nil && checked {
		err = keys.check(dst, r.tag[:])
	}
	return dst, err
}

// decrypt is payload for one that is encrypted.
func (r *receiver) decrypt(dst []byte, n int) ([]byte, error) {
	in, keys := r.in, &r.stream.receives
	if dst == nil && n > recordSize {
		dst = r.scratch.take(n)
	}
	for done := 0; done < n; {
		b, err := in.peek(min(n-done, recordSize) + tagSize)
		if err != nil {
			return nil, err
		}
		in.use(len(b))
		into := b
		if dst != nil {
			into = dst[done:]
		}
		if b, err = keys.open(into, b); err != nil {
			return nil, err
		}
		if dst == nil {
			return b, nil
		}
		done += len(b)
	}
	return dst, nil
}

// skip discards a payload of n bytes that is of no use.
func (r *receiver) skip(n int) error {
	keys := &r.stream.receives
	if r.frame.Flags&flagChecked == 0 || n == 0 {
		return r.in.skip(n)
	}
	records := 1
	if keys.encrypt {
		records = (n + recordSize - 1) / recordSize
	}
	for range records {
		keys.next()
	}
	return r.in.skip(n + records*tagSize)
}

// touch records that the peer was heard.
func (l *link) touch() { l.heard.Store(int64(time.Since(l.mesh.born))) }

// lastHeard returns when the peer was last heard, the zero time for never.
func (l *link) lastHeard() (at time.Time) {
	if since := l.heard.Load(); since != 0 {
		at = l.mesh.born.Add(time.Duration(since))
	}
	return at
}
