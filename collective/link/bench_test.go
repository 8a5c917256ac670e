package link_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/collective/tcp"
	"gorun/contrib/must"
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
	reply func(h link.Header)
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

func (s *sink) Deliver(_ int, h link.Header, p []byte) {
	if len(p) == segmentSize {
		s.bufs <- p
	}
	if s.reply != nil {
		s.reply(h)
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

// benchmarkNodes returns two connected nodes with the given handlers.
func benchmarkNodes(b testing.TB, streams int, handlers [2]link.Handler, configure func(*link.Config)) []*node {
	return newNodes(b, 2, func(c *link.Config) {
		c.Streams, c.Handler = streams, handlers[c.Self]
		if configure != nil {
			configure(c)
		}
	})
}

func BenchmarkThroughput(b *testing.B) {
	b.Run("conn", func(b *testing.B) {
		ln, err := tcp.Options{}.Listen(b.Context(), "127.0.0.1:0")
		must.Do(b, err)
		defer ln.Close()
		in, out := newBuffers(), newBuffers()
		done := make(chan error)
		go func() {
			c, err := ln.Accept()
			if err != nil {
				done <- err
				return
			}
			defer c.Close()
			for i := 0; err == nil; i++ {
				_, err = io.ReadFull(c, in[i%buffers])
			}
			done <- nil
		}()
		c, err := tcp.Options{}.Dial(b.Context(), []string{ln.Addr().String()})
		must.Do(b, err)
		b.SetBytes(segmentSize)
		for i := 0; b.Loop(); i++ {
			if _, err := c.Write(out[i%buffers]); err != nil {
				b.Fatal(err)
			}
		}
		c.(*net.TCPConn).CloseWrite()
		must.Do(b, <-done)
		c.Close()
	})
	for _, streams := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			in := newSink()
			nodes := benchmarkNodes(b, streams, [2]link.Handler{newSink(), in}, nil)
			out := newSource(buffers, segmentSize)
			b.SetBytes(segmentSize)
			b.ReportAllocs()
			in.until.Store(int64(b.N))
			b.ResetTimer()
			for range b.N {
				out.send(nodes[0].mesh, 1)
			}
			<-in.wait
			b.StopTimer()
		})
	}
}

func benchmarkRoundTrip(b *testing.B, size int, configure func(*link.Config)) {
	ping, pong := newSink(), newSink()
	nodes := benchmarkNodes(b, 4, [2]link.Handler{ping, pong}, configure)
	there, back := newSource(64, size), newSource(64, size)
	pong.reply = func(link.Header) { back.send(nodes[1].mesh, 0) }
	// As in the engine, what comes next is sent by the reader.
	ping.reply = func(link.Header) {
		if ping.got.Load()+1 < int64(b.N) {
			there.send(nodes[0].mesh, 1)
		}
	}
	b.ReportAllocs()
	ping.until.Store(int64(b.N))
	b.ResetTimer()
	there.send(nodes[0].mesh, 1)
	<-ping.wait
	b.StopTimer()
}

func BenchmarkRoundTrip(b *testing.B) {
	b.Run("conn/64", func(b *testing.B) {
		ln, err := tcp.Options{}.Listen(b.Context(), "127.0.0.1:0")
		must.Do(b, err)
		defer ln.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := ln.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 128))
		}()
		c, err := tcp.Options{}.Dial(b.Context(), []string{ln.Addr().String()})
		must.Do(b, err)
		buf := make([]byte, 128) // as many bytes as a segment of 64
		for b.Loop() {
			if _, err := c.Write(buf); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, buf); err != nil {
				b.Fatal(err)
			}
		}
		c.Close()
		<-done
	})
	for _, size := range []int{64, 4096, 65536} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchmarkRoundTrip(b, size, nil) })
	}
}

// BenchmarkSmall is the rate of small segments one way, many under way.
func BenchmarkSmall(b *testing.B) {
	in := newSink()
	nodes := benchmarkNodes(b, 4, [2]link.Handler{newSink(), in}, nil)
	out := newSource(512, 64)
	b.ReportAllocs()
	in.until.Store(int64(b.N))
	b.ResetTimer()
	for range b.N {
		out.send(nodes[0].mesh, 1)
	}
	<-in.wait
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, size := range []int{64, 3000, 10_000, segmentSize} {
		in := newSink()
		// What happens by the clock, such as looking after streams, allocates too, the more often the slower the
		// machine is: here what segments cost is counted.
		nodes := benchmarkNodes(t, 2, [2]link.Handler{newSink(), in}, func(c *link.Config) { c.ProgressTimeout = time.Hour })
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
