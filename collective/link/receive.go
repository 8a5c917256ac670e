package link

import (
	"fmt"
	"time"

	"gorun/collective/crc32c"
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
		head, err := r.in.peek(headerSize)
		if err != nil {
			return err
		}
		if err := r.frame.decode((*[headerSize]byte)(head)); err != nil {
			return err
		}
		r.in.use(headerSize)
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
	scratch scratch
	done    queue
}

func (r *receiver) acknowledgement() error {
	l, f := r.link, &r.frame
	received := r.words[:1]
	received[0] = uint64(f.sack) << 1
	if f.Length > 0 {
		b, err := r.in.peek(int(f.Length))
		if err == nil {
			err = f.check(crc32c.Sum(b))
		}
		if err != nil {
			return err
		}
		readMap(&r.words, b)
		r.in.use(len(b))
		received = r.words[:]
	}
	l.mu.Lock()
	err := l.acknowledge(f.ack, received, &r.done)
	l.mu.Unlock()
	l.notifyOwners(&r.done)
	return err
}

func (r *receiver) segment() error {
	l, f, in := r.link, &r.frame, r.in
	n := int(f.Length)
	r.words[0] = uint64(f.sack) << 1
	l.mu.Lock()
	known, err := l.got.has(f.seq)
	if err == nil {
		err = l.acknowledge(f.ack, r.words[:1], &r.done)
	}
	if known {
		l.stats.duplicates++
		l.acks.add(&f.Header)
	}
	l.mu.Unlock()
	l.notifyOwners(&r.done)
	if err != nil {
		return err
	}
	if known {
		if err := in.skip(n); err != nil {
			return err
		}
		l.mu.Lock()
		l.flushAcks()
		return nil
	}

	h := f.Header
	h.Flags &^= flagChecksum
	dst, refused := r.handler.Place(l.peer, h)
	payload, err := r.payload(dst, n, refused != nil)
	if err != nil {
		if refused == nil {
			r.unplace(h)
		}
		return err
	}

	l.mu.Lock()
	// The old stream of a slot has ended before its segments are repeated, so there should be no duplicate here; but if
	// there is one, it must not be delivered twice.
	if known, _ = l.got.has(f.seq); !known {
		r.stream.took++
		l.got.add(f.seq)
		l.acks.add(&h)
		l.stats.receivedSegments++
		l.stats.receivedBytes += uint64(n)
		if refused != nil {
			l.stats.refused++
		}
	}
	l.mu.Unlock()
	if refused == nil {
		if known {
			r.unplace(h)
		} else {
			r.handler.Deliver(l.peer, h, payload)
		}
		if dst == nil && n <= readBuffer-headerSize {
			in.use(n)
		}
	}

	l.mu.Lock()
	l.flushAcks()
	return nil
}

func (r *receiver) unplace(h Header) {
	if u, ok := r.handler.(Unplacer); ok {
		u.Unplace(r.link.peer, h)
	}
}

// payload reads n bytes to their destination. Without a dst they stay in the read buffer if they fit, and must be
// consumed after Deliver.
func (r *receiver) payload(dst []byte, n int, refused bool) ([]byte, error) {
	in := r.in
	in.fill = readBuffer
	var err error
	var sum uint32
	switch {
	case refused:
		return nil, in.skip(n)
	case dst != nil && len(dst) != n:
		panic(fmt.Sprintf("link: Place returned %d bytes for a segment of %d", len(dst), n))
	case dst == nil && n <= readBuffer-headerSize:
		if dst, err = in.peek(n); err == nil {
			sum = crc32c.Sum(dst)
		}
	default:
		if dst == nil {
			dst = r.scratch.take(n)
		}
		if n > readBuffer {
			in.fill = headFill
		}
		sum, err = in.full(dst, r.frame.Flags&flagChecksum != 0)
	}
	if err == nil {
		err = r.frame.check(sum)
	}
	return dst, err
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
