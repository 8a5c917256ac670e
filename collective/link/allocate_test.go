package link_test

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"gorun/collective/link"
)

const (
	segmentSize = 512 << 10
	buffers     = 32 // as many as a job would use: 16 MiB on either side do not fit into a cache
)

func newBuffers() [buffers][]byte {
	var b [buffers][]byte
	for i := range b {
		b[i] = bytes.Repeat([]byte{byte(i)}, segmentSize)
	}
	return b
}

// sink takes segments into one buffer and counts them.
type sink struct {
	bufs  chan []byte
	got   atomic.Int64
	wait  chan int64
	until atomic.Int64
}

func newSink() *sink {
	s := &sink{bufs: make(chan []byte, buffers), wait: make(chan int64, 1)}
	for _, b := range newBuffers() {
		s.bufs <- b
	}
	return s
}

func (s *sink) Place(_ int, h link.Header) ([]byte, error) {
	if h.Length < segmentSize {
		return nil, nil
	}
	return <-s.bufs, nil
}

func (s *sink) Deliver(_ int, _ link.Header, p []byte) {
	if len(p) == segmentSize {
		s.bufs <- p
	}
	if n := s.got.Add(1); n == s.until.Load() {
		s.wait <- n
	}
}

// source sends the same few segments over and over.
type source struct{ free chan *link.Segment }

func newSource(n, size int) *source {
	s := &source{free: make(chan *link.Segment, n)}
	for range n {
		s.free <- &link.Segment{Header: link.Header{Kind: link.Data, Epoch: 1}, Payload: bytes.Repeat([]byte{1}, size), Owner: s}
	}
	return s
}

func (s *source) Prepare(*link.Segment)     {}
func (s *source) Acked(seg *link.Segment)   { s.free <- seg }
func (s *source) send(m *link.Mesh, to int) { m.Send(to, <-s.free) }

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, size := range []int{64, 3000, 10_000, segmentSize} {
		in := newSink()
		// What happens by the clock, such as looking after streams, allocates too, the more often the slower the
		// machine is: here what segments cost is counted.
		handlers := [2]link.Handler{newSink(), in}
		nodes := newNodes(t, 2, func(c *link.Config) { c.Streams, c.Handler, c.ProgressTimeout = 2, handlers[c.Self], time.Hour })
		out := newSource(16, size)
		const rounds = 100
		burst := func() {
			in.until.Store(in.got.Load() + rounds)
			for range rounds {
				out.send(nodes[0].mesh, 1)
			}
			<-in.wait
		}
		burst()
		// Pools of copies may be emptied by the collector, and timers of the runtime may grow: a handful
		// per 100 segments is noise, one per segment is not.
		if n := testing.AllocsPerRun(10, burst); n > rounds/10 {
			t.Errorf("%.0f allocations for %d segments of %d bytes", n, rounds, size)
		}
	}
}
