package link

// queue is a FIFO of segments, linked through them.
type queue struct {
	head, tail *Segment
	n          int
}

func (q *queue) push(s *Segment) {
	s.state.next = nil
	if q.head == nil {
		q.head = s
	} else {
		q.tail.state.next = s
	}
	q.tail = s
	q.n++
}

func (q *queue) pop() *Segment {
	s := q.head
	q.head = s.state.next
	s.state.next = nil
	q.n--
	return s
}

// copied is memory for the copy of a small payload.
type copied struct {
	pool *pool
	data []byte
}

// pool keeps a bounded number of free copies of one size. The owners' traffic bounds those in use: a copy is free once
// the peer has acknowledged it.
type pool struct {
	size int
	free chan *copied
}

// copyPools has two sizes, because control messages are much shorter than CopyLimit.
type copyPools [2]pool

func newCopyPools() copyPools {
	return copyPools{
		{size: 512, free: make(chan *copied, 512)},
		{size: CopyLimit, free: make(chan *copied, 128)},
	}
}

// copyOf returns a copy of p, which is not longer than CopyLimit.
func (c *copyPools) copyOf(p []byte) *copied {
	from := &c[0]
	if len(p) > from.size {
		from = &c[1]
	}
	var b *copied
	select {
	case b = <-from.free:
	default:
		b = &copied{pool: from, data: make([]byte, from.size)}
	}
	b.data = b.data[:copy(b.data[:from.size], p)]
	return b
}

func (b *copied) release() {
	select {
	case b.pool.free <- b:
	default:
	}
}
