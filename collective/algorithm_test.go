package collective_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

// Every algorithm with every type and every reduction that is defined for it, in worlds of 1 to 9 hosts, against the
// naive twin: sums of one element and of several segments, with one rank on each host and with several on some.
func TestAlgorithms(t *testing.T) {
	for _, by := range append(schedule.Algorithms(), schedule.Auto) {
		for i := range 18 {
			hosts := i/2 + 1
			l := even(hosts, 1)
			if i%2 == 1 {
				l = mixed(hosts)
			}
			t.Run(fmt.Sprintf("%s/%d/%d", by, hosts, l.size()), func(t *testing.T) {
				c := newCluster(t, l, uint64(hosts), collective.Config{Segment: 256, Algorithm: by})
				for typ := kernel.Uint8; typ <= kernel.Complex128; typ++ {
					var checks []func()
					for _, op := range reductions(typ) {
						if by == schedule.Auto { // which is one of the others
							break
						}
						checks = append(checks, c.allreduce(fmt.Sprint(typ, op), typ, op, 19, 1, 1))
					}
					for _, n := range []int{1, 1500 / typ.Size()} {
						checks = append(checks, c.allreduce(fmt.Sprint(typ, n), typ, kernel.Sum, n, 1, 1))
					}
					for _, check := range checks {
						check()
					}
				}
				for _, op := range ops[1:] {
					c.allreduce(op.String(), kernel.Float32, op, 500, 2, 0.5)()
				}
			})
		}
	}
}

// Two hosts with several ranks average the largest and the smallest numbers of float16: neither is lost on its way.
func TestAlgorithmsAverageHalf(t *testing.T) {
	for _, by := range append(schedule.Algorithms(), schedule.Auto) {
		for _, l := range []layout{even(2, 2), even(2, 3), {{0}, {1, 2}}} {
			c := newCluster(t, l, 3, collective.Config{Segment: 1 << 10, Algorithm: by})
			for _, kind := range []collective.Kind{collective.Allreduce, collective.ReduceScatter} {
				in := bytes.Repeat([]byte{0xff, 0x7b, 0x01, 0x00, 0x00, 0x3c}, 500*l.size()) // 65504, 2⁻²⁴ and 1
				if len(l[0]) != len(l[1]) {
					in = bytes.Repeat([]byte{0xff, 0x7b}, 500*l.size()) // a host with fewer ranks may lose 2⁻²⁴
				}
				outs := make([][]byte, l.size())
				promises := make([]*promise, l.size())
				for rank := range promises {
					r := collective.Request{Kind: kind, Name: kind.String(), Type: kernel.Float16, Op: kernel.Average, Shape: []int{len(in) / 2}, In: in}
					if kind == collective.Allreduce {
						outs[rank] = make([]byte, len(in))
						r.Out = outs[rank]
					}
					promises[rank] = c.submit(rank, r)
				}
				for rank, p := range promises {
					r, got := p.wait(), outs[rank]
					if r.Err != nil {
						t.Fatal(r.Err)
					}
					if got == nil {
						got = r.Buffer.Bytes()[r.Lo:r.Hi]
					}
					if len(got) == 0 || !bytes.Equal(got, in[:len(got)]) {
						t.Fatalf("%s of %v by %s: %x, want %x", kind, l, by, got[:min(6, len(got))], in[:6])
					}
				}
			}
		}
	}
}

// Recursive doubling and Rabenseifner's algorithm add in the same order where schedule.Allreduce
// says so: the same bits of floats that no order of additions leaves alone.
func TestAlgorithmsAgree(t *testing.T) {
	for _, hosts := range []int{2, 4, 8} {
		for _, typ := range []kernel.Type{kernel.Float16, kernel.Float32, kernel.Float64} {
			var first []byte
			for _, by := range []schedule.Algorithm{schedule.ByRecursiveDoubling, schedule.ByRabenseifner} {
				c := newCluster(t, even(hosts, 1), 5, collective.Config{Segment: 1 << 10, Algorithm: by})
				first = c.sameBits(typ, kernel.Average, first, func(rank int) []byte {
					rng := rand.New(rand.NewPCG(uint64(rank), 9))
					v := make([]complex128, 3000)
					for i := range v {
						v[i] = complex(1+rng.Float64(), 0)
					}
					return encode(typ, v)
				})
			}
		}
	}
}

// reductions lists those that are defined for a type: of bits and truth not for floats, of order not for complex
// numbers, and no average of bool. Adasum is in TestAdasum, with a twin of its own: it goes by one algorithm whatever
// is asked for.
func reductions(typ kernel.Type) (defined []kernel.Op) {
	for _, op := range allOps {
		plan := kernel.Plan{Type: typ, Op: op, Pre: 1, Post: 1}
		if plan.Check() == nil && !(typ == kernel.Bool && op == kernel.Average) {
			defined = append(defined, op)
		}
	}
	return defined
}

// mixed is a layout with one to three ranks on a host, dealt in turns.
func mixed(hosts int) layout {
	l := make(layout, hosts)
	rank := 0
	for turn := range 3 {
		for i := range hosts {
			if i%3 >= turn {
				l[i] = append(l[i], rank)
				rank++
			}
		}
	}
	return l
}
