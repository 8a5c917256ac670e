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

// Every algorithm with every type in worlds of 1 to 9 hosts, with one rank each or several on some, against the naive twin.
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
				var checks []func()
				for typ := kernel.Uint8; typ <= kernel.Complex128; typ++ {
					for _, n := range []int{1, 1500 / typ.Size()} {
						checks = append(checks, c.allreduce(fmt.Sprint(typ, n), typ, kernel.Sum, n, 1, 1))
					}
				}
				for _, op := range ops[1:] {
					checks = append(checks, c.allreduce(op.String(), kernel.Float32, op, 500, 2, 0.5))
				}
				for _, check := range checks {
					check()
				}
			})
		}
	}
}

// Recursive doubling, Rabenseifner's algorithm and the tree add in the same order where schedule.Allreduce
// says so: the same bits of floats that no order of additions leaves alone.
func TestAlgorithmsAgree(t *testing.T) {
	for _, hosts := range []int{2, 4, 8} {
		for _, typ := range []kernel.Type{kernel.Float16, kernel.Float32, kernel.Float64} {
			var first []byte
			for _, by := range []schedule.Algorithm{schedule.ByRecursiveDoubling, schedule.ByRabenseifner, schedule.ByTree} {
				c := newCluster(t, even(hosts, 1), 5, collective.Config{Segment: 1 << 10, Algorithm: by})
				const n = 3000
				var promises []*promise
				outs := make([][]byte, hosts)
				for rank := range hosts {
					rng := rand.New(rand.NewPCG(uint64(rank), 9))
					v := make([]complex128, n)
					for i := range v {
						v[i] = complex(1+rng.Float64(), 0)
					}
					outs[rank] = encode(typ, v)
					promises = append(promises, c.submit(rank, collective.Request{Kind: collective.Allreduce, Name: "x",
						Type: typ, Op: kernel.Average, Shape: []int{n}, In: outs[rank], Out: outs[rank]}))
				}
				for rank, p := range promises {
					if r := p.wait(); r.Err != nil {
						t.Fatal(r.Err)
					}
					if first == nil {
						first = outs[0]
					}
					if !bytes.Equal(outs[rank], first) {
						t.Fatalf("%s on %d hosts by %s: rank %d has other bits", typ, hosts, by, rank)
					}
				}
			}
		}
	}
}
