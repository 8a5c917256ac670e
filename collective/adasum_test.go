package collective_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
)

// adasum is the reference: pairs as the paper has them, in float64.
func adasum(a, b []float64) []float64 {
	var ab, aa, bb float64
	for i := range a {
		ab += a[i] * b[i]
		aa += a[i] * a[i]
		bb += b[i] * b[i]
	}
	p, q := 1.0, 1.0
	if aa != 0 {
		p = 1 - ab/(2*aa)
	}
	if bb != 0 {
		q = 1 - ab/(2*bb)
	}
	out := make([]float64, len(a))
	for i := range a {
		out[i] = p*a[i] + q*b[i]
	}
	return out
}

// pairwise combines neighbours, then neighbours of those, until one is left.
func pairwise(v [][]float64) []float64 {
	for len(v) > 1 {
		var next [][]float64
		for i := 0; i < len(v); i += 2 {
			if i+1 < len(v) {
				next = append(next, adasum(v[i], v[i+1]))
			} else {
				next = append(next, v[i])
			}
		}
		v = next
	}
	return v[0]
}

// TestAdasum: every world from 1 to 9 hosts and several ranks per host, every float type, in place and not, against
// the reference; all ranks have the same bits.
func TestAdasum(t *testing.T) {
	layouts := []layout{even(1, 2), even(1, 3), even(1, 5), even(2, 2), even(3, 2), {{4, 0}, {2}, {1, 5, 3}}}
	for hosts := 1; hosts <= 9; hosts++ {
		layouts = append(layouts, even(hosts, 1))
	}
	types := map[kernel.Type]float64{kernel.Float64: 1e-12, kernel.Float32: 1e-5, kernel.Float16: 2e-2, kernel.BFloat16: 1e-1}
	for _, l := range layouts {
		t.Run(fmt.Sprint(l), func(t *testing.T) {
			c := newCluster(t, l, 21, collective.Config{Segment: 128})
			for typ, tolerance := range types {
				for _, n := range []int{0, 1, 33, 1000} {
					size := l.size()
					inputs := make([][]float64, size)
					for r := range inputs {
						inputs[r] = make([]float64, n)
						for i := range inputs[r] {
							if r != 1 { // a vector without length is left out
								inputs[r][i] = math.Sin(float64(r*31+i*7)) + 0.5
							}
						}
					}
					const pre, post = 0.5, 2
					var hosts [][]float64
					for _, ranks := range l {
						var v [][]float64
						for _, r := range ranks {
							x := make([]float64, n)
							for i := range x {
								x[i] = inputs[r][i] * pre
							}
							v = append(v, x)
						}
						hosts = append(hosts, pairwise(v))
					}
					power := 1
					for power*2 <= len(hosts) {
						power *= 2
					}
					for i := 0; len(hosts) > power; i++ {
						hosts[i] = adasum(hosts[i], hosts[i+1])
						hosts = slices.Delete(hosts, i+1, i+2)
					}
					want := pairwise(hosts)
					var ends []*promise
					outs := make([][]byte, size)
					for r := range size {
						in := make([]complex128, n)
						for i := range in {
							in[i] = complex(inputs[r][i], 0)
						}
						buf := encode(typ, in)
						outs[r] = buf
						if r%2 == 0 {
							outs[r] = make([]byte, len(buf))
						}
						ends = append(ends, c.submit(r, collective.Request{Kind: collective.Allreduce, Name: fmt.Sprint(typ, n), Type: typ, Op: kernel.Adasum,
							Shape: []int{n}, In: buf, Out: outs[r], Pre: pre, Post: post}))
					}
					for r, p := range ends {
						if res := p.wait(); res.Err != nil {
							t.Fatal(res.Err)
						}
						if !bytes.Equal(outs[r], outs[0]) {
							t.Fatalf("%s, %d elements: rank %d has other bits than rank 0", typ, n, r)
						}
					}
					for i, got := range decodeFloats(typ, outs[0]) {
						if math.Abs(got-want[i]*post) > tolerance*(1+math.Abs(want[i]*post)) {
							t.Fatalf("%s, element %d of %d: %v, want %v", typ, i, n, got, want[i]*post)
						}
					}
				}
			}
		})
	}
}

// decodeFloats reads what encode wrote, for float types.
func decodeFloats(t kernel.Type, b []byte) []float64 {
	out := make([]float64, len(b)/t.Size())
	for i := range out {
		e := b[i*t.Size() : (i+1)*t.Size()]
		switch t {
		case kernel.Float64:
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(e))
		case kernel.Float32:
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(e)))
		case kernel.BFloat16:
			out[i] = float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(e)) << 16))
		case kernel.Float16:
			h := binary.LittleEndian.Uint16(e)
			sign, exp, frac := 1-2*float64(h>>15), int(h>>10&31), float64(h&1023)
			if exp == 0 {
				out[i] = sign * math.Ldexp(frac, -24)
			} else {
				out[i] = sign * math.Ldexp(1024+frac, exp-25)
			}
		}
	}
	return out
}
