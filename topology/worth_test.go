package topology_test

import (
	"math/rand/v2"
	"testing"

	"gorun/topology"
)

func TestWorth(t *testing.T) {
	for _, n := range []int{0, 1, 2, 8, 9, 40} {
		hosts := make([]topology.Host, n)
		random := rand.New(rand.NewPCG(1, uint64(n)))
		var edges []topology.Edge
		for i := range n {
			for j := range i {
				edges = append(edges, topology.Edge{From: i, To: j, RTT: random.Float64() * 1e-3})
			}
		}
		pairs := topology.Worth(hosts, edges)
		if n > 8 && len(pairs) > 5*n || n <= 8 && len(pairs) != n*(n-1) {
			t.Errorf("%d hosts: %d pairs", n, len(pairs))
		}
		there := map[topology.Pair]bool{}
		for _, round := range topology.Rounds(pairs) {
			busy := map[int]bool{}
			for _, p := range round {
				if p.From == p.To || busy[p.From] || busy[p.To] || there[p] {
					t.Fatalf("%d hosts: pair %v in %v", n, p, round)
				}
				busy[p.From], busy[p.To], there[p] = true, true, true
			}
		}
		if len(there) != len(pairs) {
			t.Errorf("%d hosts: %d of %d pairs are in rounds", n, len(there), len(pairs))
		}
		for i, order := 0, topology.Order(hosts, edges).Order; n > 1 && i < n; i++ {
			if p := (topology.Pair{From: order[i], To: order[(i+1)%n]}); !there[p] {
				t.Errorf("%d hosts: edge %v of the ring is not worth it", n, p)
			}
		}
	}
}
