package link

// outgoing is what a link has to send, and what it has sent: link.mu guards it. Of what is queued, again goes first,
// then urgent, then bulk.
type outgoing struct {
	again, urgent, bulk queue
	win                 sendWindow
	window              uint64 // the most segments in flight
	load                load
}

// queued returns how many segments wait to be sent for the first time.
func (o *outgoing) queued() int { return o.urgent.n + o.bulk.n }

// waiting returns how many segments wait to be sent, also again.
func (o *outgoing) waiting() int { return o.again.n + o.queued() }

// room reports whether another segment may be in flight.
func (o *outgoing) room() bool { return o.win.next-o.win.base < o.window }

// source returns the queue whose first segment, of at most limit bytes, a stream sends next; nil if there is none.
func (o *outgoing) source(limit int) *queue {
	if s := o.again.head; s != nil && len(s.state.wire) <= limit {
		return &o.again
	}
	switch {
	case !o.room():
		return nil
	case o.urgent.head != nil:
		return &o.urgent
	}
	if s := o.bulk.head; s != nil && len(s.state.wire) <= limit {
		return &o.bulk
	}
	return nil
}

// next returns the segment, of at most limit bytes, that a stream transmits next; nil if there is none.
// Segments that were acknowledged while queued go to done.
func (o *outgoing) next(limit int, done *queue) *Segment {
	for {
		q := o.source(limit)
		if q == nil {
			return nil
		}
		s := q.pop()
		s.state.queued = false
		if o.load.waits && o.bulk.n == 0 {
			o.load.drain(o.win.next + 1) // s is not numbered yet
		}
		if !s.state.acked {
			return s
		}
		done.push(s)
	}
}
