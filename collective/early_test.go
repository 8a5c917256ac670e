package collective_test

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/contrib/must"
)

// A control message that never comes ends the world once too many came after it, instead of being waited for.
func TestControlMessageMissing(t *testing.T) {
	broken := make(chan error, 10)
	c := newCluster(t, even(2, 1), 21, collective.Config{Broken: func(peer int, err error) {
		broken <- fmt.Errorf("peer %d: %w", peer, err)
	}})
	deliver := func(number uint64) {
		p := []byte{2, 0, 0, 0, 1, 0, 0, 0} // rank 1 leaves
		c.engines[0].Deliver(1, link.Header{Kind: link.Control, Epoch: 1, Offset: number, Length: uint32(len(p))}, p)
	}
	for _, number := range []uint64{1, 2, 1 << 17} {
		deliver(number)
	}
	if len(broken) > 0 {
		t.Fatalf("messages that came early broke the world: %v", <-broken)
	}
	deliver(1<<17 + 1)
	deliver(1<<17 + 2)
	if len(broken) != 1 {
		t.Fatalf("the world was broken %d times by a message that is missing, want once", len(broken))
	}
	if err := <-broken; !strings.Contains(err.Error(), "peer 1: control message 0 of host id 1 is missing") {
		t.Errorf("what broke the world: %v", err)
	}
}

// What comes before an operation begins is kept as far as its tensor allows; more than that ends the world.
func TestEarlySegmentsFitTheTensor(t *testing.T) {
	const n = 4096
	for _, test := range []struct {
		name   string
		offset uint64
		count  int
	}{{"inside", 0, 1}, {"behind it", n, 1}, {"far behind it", 1 << 40, 1}, {"too many", 0, 10 * n / 64}} {
		t.Run(test.name, func(t *testing.T) {
			broken := make(chan error, 2)
			c := newCluster(t, even(3, 1), 22, collective.Config{Segment: 64, Direct: -1, Broken: func(_ int, err error) { broken <- err }})
			var op atomic.Uint64
			// Host 1 does not hear host 3: nothing begins there, and all that others send comes early.
			c.mesh.setHold(func(from, to int, h link.Header) bool {
				if to == 0 && h.Kind == link.Data {
					op.Store(h.Op)
				}
				return from == 2 && to == 0 && h.Kind == link.Control
			})
			var promises []*promise
			var in [3][]byte
			for rank := range 3 {
				in[rank] = bytes.Repeat([]byte{byte(rank + 1)}, n)
				promises = append(promises, c.submit(rank, sumIn(0, "x", in[rank])))
			}
			must.Soon(t, "somebody sends to host 1", func() bool { return op.Load() != 0 })
			for range test.count {
				h := link.Header{Kind: link.Data, Epoch: 1, Op: op.Load(), Gen: 1 << 20, Step: 1, Offset: test.offset, Length: 64}
				c.engines[0].Deliver(1, h, make([]byte, 64))
			}
			if test.name == "inside" == (len(broken) > 0) {
				t.Fatalf("what does not fit broke the world %d times", len(broken))
			}
			if len(broken) > 0 {
				if err := <-broken; !strings.Contains(err.Error(), "does not fit") {
					t.Errorf("what broke the world: %v", err)
				}
				return
			}
			c.mesh.setHold(nil) // what was kept wrongly is dropped later
			for rank, p := range promises {
				if p.good(); !bytes.Equal(in[rank], bytes.Repeat([]byte{6}, n)) {
					t.Errorf("rank %d: another sum than 6", rank)
				}
			}
		})
	}
}

// Where no one can know how much is to come there is a limit, which ends the world.
func TestEarlySegmentsHaveALimit(t *testing.T) {
	broken := make(chan error, 100)
	c := newCluster(t, even(3, 1), 23, collective.Config{Segment: 64, Stash: 1000, Broken: func(_ int, err error) { broken <- err }})
	for range 20 { // what was kept is given back
		var sent atomic.Bool
		c.mesh.setHold(func(from, to int, h link.Header) bool {
			if to == 0 && h.Kind == link.Data {
				sent.Store(true)
			}
			return from == 2 && to == 0 && h.Kind == link.Control
		})
		promises := c.everywhere(gather(100))
		must.Soon(t, "somebody sends to host 1", sent.Load)
		c.mesh.setHold(nil)
		for _, p := range promises {
			p.good().Buffer.Release()
		}
	}
	if len(broken) > 0 {
		t.Fatalf("400 bytes at a time broke the world: %v", <-broken)
	}
	c.mesh.setHold(func(from, to int, h link.Header) bool { return from == 2 && to == 0 && h.Kind == link.Control })
	c.everywhere(gather(10000))
	err := <-broken
	if !strings.Contains(err.Error(), "1000 bytes") {
		t.Errorf("what broke the world: %v", err)
	}
}

// A host without memory for a result fails its own ranks, and not what passes through it.
func TestHostWithoutMemory(t *testing.T) {
	c := newMixedCluster(t, even(3, 1), 4, func(host int) collective.Config {
		if host == 1 {
			return collective.Config{Segment: 64, Alloc: noMemory{}}
		}
		return collective.Config{Segment: 64}
	})
	in := func(rank, n int) []byte { return bytes.Repeat([]byte{byte(rank + 1)}, n) }
	for kind, want := range map[collective.Kind][]byte{
		collective.Allgather:     slices.Concat(in(0, 300), in(1, 300), in(2, 300)),
		collective.Alltoall:      slices.Concat(in(0, 100), in(1, 100), in(2, 100)),
		collective.ReduceScatter: bytes.Repeat([]byte{6}, 100),
	} {
		var promises []*promise
		for rank := range 3 {
			promises = append(promises, c.submit(rank, collective.Request{Kind: kind, Name: kind.String(), Op: kernel.Sum, Type: kernel.Int8, Shape: []int{300}, In: in(rank, 300)}))
		}
		for rank, p := range promises {
			r := p.wait()
			switch {
			case rank == 1 && (code(t, r.Err) != collective.CodeInternal || !strings.Contains(r.Err.Error(), "out of memory") || !strings.Contains(r.Err.Error(), "host2")):
				t.Errorf("%s, rank 1: %v", kind, r.Err)
			case rank != 1 && (r.Err != nil || !bytes.Equal(r.Buffer.Bytes()[r.Lo:r.Hi], want)):
				t.Errorf("%s, rank %d: %v, or another result", kind, rank, r.Err)
			}
		}
	}
}

// Ranks that are alone on their host get the error of a result that does not fit, and no memory is made for it.
func TestNoMemoryOnOneHost(t *testing.T) {
	c := newCluster(t, layout{{0, 1}}, 24, collective.Config{Alloc: noMemory{}})
	const n = 8 << 20
	in := make([]byte, n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, kind := range []collective.Kind{collective.Allgather, collective.Alltoall, collective.ReduceScatter, collective.Reduce, collective.Gather, collective.Scatter} {
		r := collective.Request{Kind: kind, Name: "r", Type: kernel.Uint8, Op: kernel.Sum, Shape: []int{n}, In: in}
		for _, p := range c.everywhere(r) {
			if r := p.wait(); r.Err == nil || !strings.Contains(r.Err.Error(), "out of memory") {
				t.Errorf("%s without memory: %v", p.what, r.Err)
			}
		}
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > n/2 {
		t.Errorf("%d bytes were allocated for results of %d bytes that nobody gets", after.TotalAlloc-before.TotalAlloc, n)
	}
}
