package link

// Streams may be on different networks, and a segment may be meant for one of them (Segment.Rail). Such a segment waits
// for a stream on its network, even if a stream on another one is free: that stream has other work. If its network has
// no open stream, the streams on all other networks carry it.

// rail returns the network of a stream, from 1; 0 for the express stream, or if there is only one network.
func (c *Config) rail(stream int) int {
	if c.Rails < 2 || stream == express {
		return 0
	}
	return (stream-1)%c.Rails + 1
}

// rails are the queues of large segments, by network. link.mu guards them.
type rails struct {
	queues []queue // the first one is for any network
	up     []int   // open streams of each network
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

// source returns the queue that a stream on a network takes its next segment from, nil if there is none.
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
