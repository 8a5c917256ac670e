package collective_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

var codings = []kernel.Coding{kernel.CodingFloat16, kernel.CodingBFloat16, kernel.CodingInt8}

// Small whole numbers survive every coding, so that sums are exact: with each algorithm, in worlds of 2 to 9 hosts
// and with several ranks on some of them.
func TestCodedSums(t *testing.T) {
	for _, coding := range codings {
		for _, by := range append(schedule.Algorithms(), schedule.Auto) {
			t.Run(fmt.Sprintf("%s/%s", coding, by), func(t *testing.T) {
				layouts := []layout{{{4, 0}, {2}, {1, 5, 3}}}
				for _, hosts := range []int{2, 3, 4, 6, 8, 9} {
					layouts = append(layouts, even(hosts, 1))
				}
				for _, l := range layouts {
					c := newCluster(t, l, uint64(len(l)), collective.Config{Segment: 256, Algorithm: by, Coding: coding})
					var checks []func()
					for _, n := range []int{1, 15, 17, 1500} {
						checks = append(checks, c.allreduce(fmt.Sprint(n), kernel.Float32, kernel.Sum, n, 1, 1))
					}
					for _, typ := range []kernel.Type{kernel.Float64, kernel.Int32} {
						checks = append(checks, c.allreduce(typ.String(), typ, kernel.Sum, 700, 1, 1))
					}
					checks = append(checks, c.allreduce("max", kernel.Float32, kernel.Max, 900, 1, 1),
						c.allreduce("scaled", kernel.Float32, kernel.Sum, 900, 2, 0.5))
					for _, check := range checks {
						check()
					}
				}
			})
		}
	}
}

// Segments that the link does not copy, and tiles that are not whole.
func TestCodedLargeSums(t *testing.T) {
	for _, coding := range codings {
		for _, by := range schedule.Algorithms() {
			c := newCluster(t, layout{{2, 0}, {1}, {3}, {4}}, 3, collective.Config{Segment: 96 << 10, Algorithm: by, Coding: coding})
			for range 2 { // the second time ops come from the pool
				check := c.allreduce("x", kernel.Float32, kernel.Sum, 100_001, 1, 1)
				c.allreduce("y", kernel.Float32, kernel.Sum, 10_000, 1, 1)()
				check()
			}
		}
	}
}

// gradients are numbers that no coding leaves alone.
func gradients(rank, n int, scale float64) []float64 {
	rng := rand.New(rand.NewPCG(uint64(rank), 31))
	v := make([]float64, n)
	for i := range v {
		v[i] = rng.NormFloat64() * scale
	}
	return v
}

func encodeFloats(t kernel.Type, v []float64) []byte {
	var b []byte
	for _, x := range v {
		if t == kernel.Float64 {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		} else {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		}
	}
	return b
}

// All ranks have the same bits, and the error is within what is promised.
func TestCodedErrors(t *testing.T) {
	const n = 2003
	for _, coding := range codings {
		for _, by := range schedule.Algorithms() {
			for _, l := range []layout{even(2, 1), even(3, 2), {{0}, {1, 2}, {3}, {4}, {5}}, even(8, 1)} {
				for _, typ := range []kernel.Type{kernel.Float32, kernel.Float64} {
					c := newCluster(t, l, 7, collective.Config{Segment: 1 << 10, Algorithm: by, Coding: coding})
					size := l.size()
					sums, sizes := make([]float64, n), make([]float64, n)
					per := 64 / typ.Size() // sizes are of lines, if these are coded together
					if coding != kernel.CodingInt8 {
						per = 1
					}
					got := decodeFloats(typ, c.sameBits(typ, kernel.Average, nil, func(rank int) []byte {
						v := gradients(rank, n, 1)
						for i := range v {
							sums[i] += v[i]
							top := 0.0
							for j := i / per * per; j < min(i/per*per+per, n); j++ {
								top = max(top, math.Abs(v[j]))
							}
							sizes[i] += top
						}
						return encodeFloats(typ, v)
					}))
					for i := range got {
						if bound := bound(coding, len(l), sizes[i]) / float64(size); math.Abs(got[i]-sums[i]/float64(size)) > bound {
							t.Fatalf("%s by %s on %d hosts: element %d is off by %g, more than %g", coding, by, len(l), i, got[i]-sums[i]/float64(size), bound)
						}
					}
				}
			}
		}
	}
}

// bound is how far a coded sum may be off, if the sizes of what was added make that in all.
func bound(c kernel.Coding, hosts int, size float64) float64 {
	once := size * map[kernel.Coding]float64{kernel.CodingFloat16: 1. / 2048, kernel.CodingBFloat16: 1. / 256, kernel.CodingInt8: 1. / 127}[c]
	return float64(hosts)*once*1.01 + 1e-5 // what codings do to errors, and additions themselves
}

// An average of numbers that fit a float16 does not overflow because their sum does; a sum does, and shows it.
func TestCodedAverageDoesNotOverflow(t *testing.T) {
	c := newCluster(t, even(4, 1), 1, collective.Config{Segment: 1 << 10, Algorithm: schedule.ByRing, Coding: kernel.CodingFloat16})
	for op, want := range map[kernel.Op]float64{kernel.Average: 60_000, kernel.Sum: math.Inf(1)} {
		out := c.sameBits(kernel.Float32, op, nil, func(int) []byte { return encodeFloats(kernel.Float32, slicesOf(60_000, 2000)) })
		if got := decodeFloats(kernel.Float32, out)[1234]; math.Abs(got-want) > 60 {
			t.Errorf("%s: %g, want %g", op, got, want)
		}
	}
}

func slicesOf(v float64, n int) []float64 {
	s := make([]float64, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// Reduce-scatter and reduce go coded too, with blocks whose borders are no lines' borders.
func TestCodedScatters(t *testing.T) {
	for _, coding := range codings {
		for _, l := range []layout{even(2, 1), {{4, 0}, {2}, {1, 5, 3}}, even(5, 2)} {
			for _, shape := range [][]int{{7}, {100, 3}, {1, 5}, {23, 11}} {
				c := newCluster(t, l, 5, collective.Config{Segment: 256, Coding: coding})
				n := shape[0]
				row := 1
				for _, d := range shape[1:] {
					n, row = n*d, row*d
				}
				size := l.size()
				inputs := make([][]complex128, size)
				for _, kind := range []collective.Kind{collective.ReduceScatter, collective.Reduce} {
					var promises []*promise
					for rank := range size {
						inputs[rank] = sample(kernel.Float32, kernel.Sum, rank, n)
						promises = append(promises, c.submit(rank, collective.Request{Kind: kind, Name: "x", Type: kernel.Float32, Op: kernel.Sum,
							Shape: shape, In: encode(kernel.Float32, inputs[rank])}))
					}
					want := fold(kernel.Float32, kernel.Sum, 1, 1, inputs)
					plusZeros(kernel.Float32, want)
					var all []byte
					for _, p := range promises {
						r := p.good()
						for _, v := range decodeFloats(kernel.Float32, r.Buffer.Bytes()[r.Lo:r.Hi]) {
							all = append(all, encodeFloats(kernel.Float32, []float64{v + 0})...)
						}
					}
					if !bytes.Equal(all, want) {
						t.Fatalf("%s of %v over %v as %s: wrong result", kind, shape, l, coding)
					}
				}
			}
		}
	}
}

// A request has its own coding; bytes on the wire are as few as they should be.
func TestCodingOfARequest(t *testing.T) {
	const n = 64_000
	c := newCluster(t, even(3, 1), 1, collective.Config{Segment: 4 << 10, Algorithm: schedule.ByRing, Coding: kernel.CodingFloat16})
	plain := 3 * 2 * 2 * n * 4 / 3 // 2(N-1)/N of the tensor from each host
	for coding, want := range map[kernel.Coding]int{kernel.CodingDefault: plain / 2, kernel.CodingNone: plain, kernel.CodingBFloat16: plain / 2,
		kernel.CodingInt8: plain * 17 / 64} {
		before := c.mesh.dataSent()
		c.inPlace(collective.Request{Type: kernel.Float32, Op: kernel.Sum, Coding: coding},
			func(rank int) []byte { return encodeFloats(kernel.Float32, gradients(rank, n, 1)) })
		if got := c.mesh.dataSent() - before; got < want || got > want+want/1000 {
			t.Errorf("%q: %d bytes on the wire, want %d", coding, got, want)
		}
	}
}

func (m *mesh) dataSent() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sent
}

// Ranks that want different codings get an error, and an unknown coding is refused.
func TestCodingMismatch(t *testing.T) {
	c := newCluster(t, even(2, 1), 1, collective.Config{Coding: kernel.CodingInt8})
	request := collective.Request{Kind: collective.Allreduce, Name: "x", Type: kernel.Float32, Op: kernel.Sum, Shape: []int{5000}, In: make([]byte, 20_000), Out: make([]byte, 20_000)}
	a := c.submit(0, request)
	request.Coding = kernel.CodingNone
	b := c.submit(1, request)
	for _, p := range []*promise{a, b} {
		if r := p.wait(); code(t, r.Err) != collective.CodeMismatch || !strings.Contains(r.Err.Error(), "wire compression int8") {
			t.Errorf("%v", r.Err)
		}
	}
	request.Coding = 9
	if _, err := c.try(0, request); err == nil || code(t, err) != collective.CodeInvalid {
		t.Errorf("coding 9: %v", err)
	}
}

// Ranks that joined stand in with zeros.
func TestCodedJoin(t *testing.T) {
	c := newCluster(t, even(3, 1), 1, collective.Config{Segment: 1 << 10, Coding: kernel.CodingBFloat16})
	joined := c.submit(2, join)
	var outs [][]byte
	var promises []*promise
	for rank := range 2 {
		outs = append(outs, encodeFloats(kernel.Float32, slicesOf(float64(rank+1), 3000)))
		promises = append(promises, c.submit(rank, collective.Request{Kind: collective.Allreduce, Name: "x", Type: kernel.Float32, Op: kernel.Sum,
			Shape: []int{3000}, In: outs[rank], Out: outs[rank]}))
	}
	for rank, p := range promises {
		p.good()
		if !bytes.Equal(outs[rank], encodeFloats(kernel.Float32, slicesOf(3, 3000))) {
			t.Errorf("rank %d has another result", rank)
		}
	}
	for rank := range 2 {
		c.submit(rank, join)
	}
	ended(joined)
}
