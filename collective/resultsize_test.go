package collective_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/contrib/must"
)

// A result that is too large for a host ends with the same error on all ranks, and no host takes memory for it; what
// just fits is done, and the job goes on.
func TestRoom(t *testing.T) {
	const rows = 300 // of three ranks each, a byte long
	for _, test := range []struct {
		kind   collective.Kind
		root   int
		splits []int
		room   [3]int64 // by host, 0 is enough
		text   string   // of the error if it is one byte less
	}{
		{collective.Allgather, 0, nil, [3]int64{0, 3 * rows, 0}, "the result of 900 bytes is too large for host2, which has room for 899"},
		{collective.Allgather, 0, nil, [3]int64{3 * rows, 0, 3 * rows}, "the result of 900 bytes is too large for host1, which has room for 899"},
		{collective.ReduceScatter, 0, nil, [3]int64{0, 0, rows}, "the result of 300 bytes is too large for host3, which has room for 299"},
		{collective.Reduce, 1, nil, [3]int64{rows, 0, 0}, "the result of 300 bytes is too large for host1, which has room for 299"},
		{collective.Alltoall, 0, nil, [3]int64{0, 0, rows}, "the result of 300 bytes is too large for host3, which has room for 299"},
		{collective.Alltoall, 0, []int{5, 200, 7}, [3]int64{15, 600, 21}, "the result of 15 bytes is too large for host1, which has room for 14"},
		{collective.Gather, 1, nil, [3]int64{1, 3 * rows, 1}, "the result of 900 bytes is too large for host2, which has room for 899"},
		{collective.Scatter, 1, []int{10, 20, 40}, [3]int64{0, 0, 40}, "the result of 40 bytes is too large for host3, which has room for 39"},
	} {
		t.Run(fmt.Sprint(test.kind, test.splits, test.room), func(t *testing.T) {
			for _, less := range []int64{0, 1} {
				refs, made := new(atomic.Int64), new(atomic.Int64)
				c := newMixedCluster(t, even(3, 1), 4, func(host int) collective.Config {
					room := test.room[host]
					if room > 1 {
						room -= less
					}
					return collective.Config{Alloc: asked{counting{refs}, made}, Room: room}
				})
				for _, p := range c.everywhere(collective.Request{Kind: test.kind, Name: "r", Root: test.root, Op: kernel.Sum,
					Type: kernel.Uint8, Shape: []int{rows}, Splits: test.splits, In: make([]byte, rows)}) {
					r := p.wait()
					if less == 0 {
						if r.Err != nil {
							t.Fatal(r.Err)
						}
						r.Buffer.Release()
						continue
					}
					want := fmt.Sprintf("%s \"r\": %s: submit it in parts", test.kind, test.text)
					if r.Err == nil || code(t, r.Err) != collective.CodeInternal || r.Err.Error() != want {
						t.Errorf("%s: %v, want %s", p.what, r.Err, want)
					}
				}
				if less == 1 && made.Load() > 0 {
					t.Errorf("memory was taken %d times for what nobody gets", made.Load())
				}
				c.allreduce("r", kernel.Float32, kernel.Sum, 1000, 1, 1)()
				must.Soon(t, "all result memory is released", func() bool { return refs.Load() == 0 })
			}
		})
	}
}

// asked counts the results that were asked for.
type asked struct {
	counting
	made *atomic.Int64
}

func (a asked) Alloc(n int) (collective.Buffer, error) {
	a.made.Add(1)
	return a.counting.Alloc(n)
}

// What passes through a host whose memory ranks hold is of the heap only up to a limit. Beyond it the host reports an
// error, and the world ends.
func TestSpillHasALimit(t *testing.T) {
	for _, kind := range []collective.Kind{collective.Allgather, collective.ReduceScatter, collective.Reduce, collective.Alltoall, collective.Gather, collective.Scatter} {
		type end struct {
			who int
			err error
		}
		broken := make(chan end, 10)
		c := newMixedCluster(t, even(3, 1), 4, func(host int) collective.Config {
			if host == 1 {
				return collective.Config{Alloc: noMemory{}, Spill: 1000, Broken: func(who int, err error) { broken <- end{who, err} }}
			}
			return collective.Config{}
		})
		submit := func(n int) []*promise {
			return c.everywhere(collective.Request{Kind: kind, Name: "p", Op: kernel.Sum, Root: 1, Type: kernel.Uint8,
				Shape: []int{n}, In: make([]byte, n)})
		}
		for range 5 { // what was taken is given back
			for rank, p := range submit(300) {
				r := p.wait()
				if (rank == 1) != (r.Err != nil) {
					t.Fatalf("%s: %v", p.what, r.Err)
				}
				if r.Err == nil {
					r.Buffer.Release()
				}
			}
			must.Soon(t, "other hosts have what passed through", func() bool { return collective.Spilled(c.engines[1]) == 0 })
		}
		if len(broken) > 0 {
			t.Fatalf("%s: 900 bytes at a time broke the world: %v", kind, (<-broken).err)
		}
		promises := submit(30_000)
		if r := promises[1].wait(); r.Err == nil || !strings.Contains(r.Err.Error(), "out of memory") {
			t.Errorf("%s: %v", kind, r.Err)
		}
		e := <-broken
		if text := e.err.Error(); e.who != 1 || !strings.Contains(text, "host2: out of memory, and as other hosts need it to pass through, which may take 1000 bytes") {
			t.Errorf("%s: what broke the world: host %d, %s", kind, e.who, text)
		}
		c.mesh.close() // the daemons forget their links first, and then:
		for _, engine := range c.engines {
			engine.Abort(&collective.Error{Code: collective.CodeAborted, Text: "the world ended"})
		}
		for _, p := range promises {
			if r := p.wait(); r.Err == nil && r.Buffer != nil {
				r.Buffer.Release()
			}
		}
	}
}
