package link

// Streams may be on different networks, and what is sent may be meant for one of them (Segment.Rail). Then it waits
// for a stream there, even if another one is free: that one has other work to do. If no stream is there any more, all
// others carry it.

// rail returns the network of a stream, from 1; 0 for the express stream, or if it makes no difference.
func (c *Config) rail(stream int) int {
	if c.Rails < 2 || stream == express {
		return 0
	}
	return (stream-1)%c.Rails + 1
}

// rails are large segments by the network they are for. It is guarded by link.mu.
type rails struct {
	queues []queue // the first has those for any
	up     []int   // streams on each
}

func newRails(networks int) rails {
	n := 1
	if networks > 1 {
		n += networks
	}
	return rails{make([]queue, n), make([]int, n)}
}

// count returns how many queues there are.
func (r *rails) count() int { return len(r.queues) }

func (r *rails) push(s *Segment) {
	at := s.Rail
	if at < 0 || at >= len(r.queues) {
		at = 0
	}
	r.queues[at].push(s)
}

// n returns how many segments wait.
func (r *rails) n() (n int) {
	for i := range r.queues {
		n += r.queues[i].n
	}
	return n
}

// source returns the queue from which a stream on a network takes the next segment, nil if there is none.
func (r *rails) source(rail int) *queue {
	if q := &r.queues[rail]; q.head != nil {
		return q
	}
	for i := range r.queues {
		if q := &r.queues[i]; q.head != nil && (i == 0 || r.up[i] == 0) {
			return q
		}
	}
	return nil
}

func (r *rails) all() (all []*queue) {
	for i := range r.queues {
		all = append(all, &r.queues[i])
	}
	return all
}
