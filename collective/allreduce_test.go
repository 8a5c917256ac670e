package collective_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/schedule"
	"gorun/contrib/must"
)

// worlds are layouts with configurations that make the engine use all its strategies.
var worlds = append(byAlgorithm(), []testWorld{
	{"1x1", even(1, 1), collective.Config{}},
	{"1x2", even(1, 2), collective.Config{Inline: -1}},
	{"1x3", even(1, 3), collective.Config{}},
	{"2x1ring", even(2, 1), collective.Config{Segment: 256, Algorithm: schedule.ByRing}},
	{"2x1direct", even(2, 1), collective.Config{Segment: 256, Algorithm: schedule.ByDirect}},
	{"2x2", even(2, 2), collective.Config{Segment: 4096, Direct: 2000}},
	{"3x1", even(3, 1), collective.Config{Segment: 1 << 10, Algorithm: schedule.ByRing}},
	{"4x1", layout{{2}, {0}, {3}, {1}}, collective.Config{Segment: 64, Direct: 2000}},
	{"5x2", even(5, 2), collective.Config{Segment: 2 << 10, Algorithm: schedule.ByRing}},
	{"3 uneven auto", layout{{4, 0}, {2}, {1, 5, 3}}, collective.Config{Segment: 192}},
	{"6x1 halving", even(6, 1), collective.Config{Segment: 256, Algorithm: schedule.ByRabenseifner}},
	{"4x2 halving", even(4, 2), collective.Config{Segment: 1 << 10, Algorithm: schedule.ByRabenseifner}},
	// A message costs nothing beside its bytes, or all there is: chains and trees.
	{"7 uneven chains", mixed(7), collective.Config{Segment: 256, Cost: schedule.Cost{Alpha: 1e-9, Beta: 1e-3}}},
	{"6x1 trees", even(6, 1), collective.Config{Segment: 256, Cost: schedule.Cost{Alpha: 1, Beta: 1e-12}}},
	// Segments that the link does not copy.
	{"5x1 large halving", even(5, 1), collective.Config{Segment: 64 << 10, Algorithm: schedule.ByRabenseifner}},
	{"2x2 large segments", even(2, 2), collective.Config{Segment: 64 << 10, Algorithm: schedule.ByRing}},
	{"3x1 large direct", even(3, 1), collective.Config{Segment: 64 << 10, Algorithm: schedule.ByDirect}},
}...)

// testWorld is a layout and how its hosts are configured.
type testWorld struct {
	name   string
	layout layout
	cfg    collective.Config
}

// each runs f in every one of the worlds, and checks that all result memory is released in the end.
func each(t *testing.T, worlds []testWorld, f func(t *testing.T, c *cluster, size int)) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			refs := new(atomic.Int64)
			w.cfg.Alloc = counting{refs}
			f(t, newCluster(t, w.layout, 31, w.cfg), w.layout.size())
			must.Soon(t, "all result memory is released", func() bool { return refs.Load() == 0 })
		})
	}
}

// byAlgorithm returns an uneven world for each algorithm.
func byAlgorithm() (all []testWorld) {
	for _, by := range schedule.Algorithms() {
		all = append(all, testWorld{"3 uneven " + by.String(), layout{{4, 0}, {2}, {1, 5, 3}}, collective.Config{Segment: 192, Algorithm: by}})
	}
	return all
}

var ops = []kernel.Op{kernel.Sum, kernel.Average, kernel.Min, kernel.Max, kernel.Product}

// allOps are ops and those of bits and truth, which floats do not have.
var allOps = append(slices.Clone(ops), kernel.BitAnd, kernel.BitOr, kernel.BitXor, kernel.LogicalAnd, kernel.LogicalOr, kernel.LogicalXor)

func TestAllreduce(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			c := newCluster(t, w.layout, 1, w.cfg)
			large := 30_000
			if w.cfg.Segment > 0 && w.cfg.Segment < 1000 {
				large = 5000 // many segments all the same
			}
			for _, n := range []int{0, 1, 7, 1000, large} {
				for typ := kernel.Uint8; typ <= kernel.Complex128; typ++ {
					// All reductions of a type at once; the large ones of some types only.
					if n > 1000 && typ != kernel.Float32 && typ != kernel.Int8 && typ != kernel.Complex128 {
						continue
					}
					var checks []func()
					for _, op := range reductions(typ) {
						if n > 1000 && op != kernel.Sum && typ != kernel.Float32 {
							continue
						}
						checks = append(checks, c.allreduce(fmt.Sprintf("%s.%s.%d", typ, op, n), typ, op, n, 1, 1))
					}
					for _, check := range checks {
						check()
					}
				}
			}
		})
	}
}

// allreduce submits an operation on all ranks, half of them in place, and returns what waits for it and
// compares the results to the naive twin's.
func (c *cluster) allreduce(name string, typ kernel.Type, op kernel.Op, n int, pre, post float64) func() {
	c.t.Helper()
	size := c.layout.size()
	inputs := make([][]complex128, size)
	outs := make([][]byte, size)
	promises := make([]*promise, size)
	for rank := range size {
		inputs[rank] = sample(typ, op, rank, n)
		in := encode(typ, inputs[rank])
		outs[rank] = in
		if (rank+n)%2 == 0 {
			outs[rank] = make([]byte, len(in))
		}
		promises[rank] = c.submit(rank, collective.Request{Kind: collective.Allreduce, Name: name, Type: typ, Op: op,
			Shape: []int{n}, In: in, Out: outs[rank], Pre: pre, Post: post})
	}
	return func() {
		c.t.Helper()
		want := fold(typ, op, pre, post, inputs)
		for rank, p := range promises {
			p.good()
			if c.unsigned {
				plusZeros(typ, outs[rank])
				plusZeros(typ, want)
			}
			if !bytes.Equal(outs[rank], want) {
				i := 0
				for outs[rank][i] == want[i] {
					i++
				}
				c.t.Fatalf("%s: byte %d of %d is %#x, want %#x", p.what, i, len(want), outs[rank][i], want[i])
			}
		}
	}
}

// plusZeros takes the signs of zeros away.
func plusZeros(typ kernel.Type, b []byte) {
	size := typ.Size()
	for i := 0; i < len(b); i += size {
		if e := b[i : i+size]; bytes.Count(e[:size-1], []byte{0}) == size-1 && e[size-1] == 0x80 && (typ == kernel.Float32 || typ == kernel.Float64) {
			e[size-1] = 0
		}
	}
}

func TestAllreduceScales(t *testing.T) {
	c := newCluster(t, layout{{0, 2}, {1}, {3, 4}}, 1, collective.Config{Segment: 256, Direct: 300})
	for _, n := range []int{5, 5000} {
		for _, typ := range []kernel.Type{kernel.Int32, kernel.Float16, kernel.BFloat16, kernel.Float32, kernel.Float64, kernel.Complex64} {
			for _, op := range []kernel.Op{kernel.Sum, kernel.Average} {
				c.allreduce(fmt.Sprint("pre", typ, op, n), typ, op, n, 2, 1)()
				c.allreduce(fmt.Sprint("post", typ, op, n), typ, op, n, 1, 0.5)()
				c.allreduce(fmt.Sprint("both", typ, op, n), typ, op, n, 4, 0.25)()
			}
		}
	}
}

// Results of floating-point sums depend on the order of additions, but must not differ between ranks,
// nor between runs.
func TestAllreduceBitsAreEqual(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			var first []byte
			for run := range 3 {
				c := newCluster(t, w.layout, uint64(run), w.cfg)
				first = c.sameBits(kernel.Float32, kernel.Average, first, func(rank int) []byte {
					return encodeFloats(kernel.Float32, gradients(rank, 5000, 1))
				})
			}
		})
	}
}

// inPlace runs an allreduce on all ranks, and returns what it made of what they bring.
func (c *cluster) inPlace(r collective.Request, bring func(rank int) []byte) [][]byte {
	c.t.Helper()
	r.Kind, r.Name = collective.Allreduce, "x"
	var outs [][]byte
	var promises []*promise
	for rank := range c.layout.size() {
		b := bring(rank)
		r.Shape, r.In, r.Out = []int{len(b) / r.Type.Size()}, b, b
		outs, promises = append(outs, b), append(promises, c.submit(rank, r))
	}
	ended(promises...)
	return outs
}

// sameBits runs an allreduce, whose result must have the same bits on all ranks, and those of want unless that is nil.
func (c *cluster) sameBits(typ kernel.Type, op kernel.Op, want []byte, bring func(rank int) []byte) []byte {
	c.t.Helper()
	outs := c.inPlace(collective.Request{Type: typ, Op: op}, bring)
	for rank, out := range outs {
		if !bytes.Equal(out, outs[0]) || want != nil && !bytes.Equal(out, want) {
			c.t.Fatalf("%s of %s over %v: the result of rank %d has other bits", op, typ, c.layout, rank)
		}
	}
	return outs[0]
}

// Ranks submit fifty names, each in an order of its own and at its own time.
func TestAnyOrder(t *testing.T) {
	each(t, worlds, func(t *testing.T, c *cluster, size int) {
		const names, n = 50, 700
		type result struct {
			rank, name int
			out        []byte
			p          *promise
		}
		results := make(chan []result, size)
		for rank := range size {
			c.mesh.wg.Go(func() {
				var all []result
				rng := rand.New(rand.NewPCG(uint64(rank), 4))
				for _, name := range rng.Perm(names) {
					in := encode(kernel.Int32, sample(kernel.Int32, kernel.Sum, rank*names+name, n))
					p, err := c.try(rank, collective.Request{Kind: collective.Allreduce, Name: fmt.Sprint("grad.", name),
						Type: kernel.Int32, Op: kernel.Sum, Shape: []int{n}, In: in, Out: in})
					if err != nil {
						t.Error(err)
					}
					all = append(all, result{rank, name, in, p})
				}
				results <- all
			})
		}
		for range size {
			for _, r := range <-results {
				r.p.good()
				inputs := make([][]complex128, size)
				for q := range inputs {
					inputs[q] = sample(kernel.Int32, kernel.Sum, q*names+r.name, n)
				}
				if want := fold(kernel.Int32, kernel.Sum, 1, 1, inputs); !bytes.Equal(r.out, want) {
					t.Fatalf("rank %d: wrong sum of name %d", r.rank, r.name)
				}
			}
		}
		for _, e := range c.engines {
			must.Soon(t, "no operation is open", func() bool { return len(e.Pending(epochStart)) == 0 })
		}
		if c.mesh.refused > 0 {
			t.Errorf("%d segments were refused", c.mesh.refused)
		}
	})
}
