package topology_test

import (
	"math/rand/v2"
	"slices"
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

// TestWorthOfAnswers: hosts that do not answer are not the nearest ones.
func TestWorthOfAnswers(t *testing.T) {
	const n = 12
	var edges []topology.Edge
	for to := 1; to < n; to++ {
		if to <= 5 {
			edges = append(edges, topology.Edge{From: 0, To: to, Blocked: true})
		} else {
			edges = append(edges, topology.Edge{From: 0, To: to, RTT: float64(to) * 1e-4})
		}
	}
	for from := 1; from < n; from++ {
		for to := range from {
			if to > 0 {
				edges = append(edges, topology.Edge{From: from, To: to, RTT: 1e-3})
			}
		}
	}
	pairs := topology.Worth(make([]topology.Host, n), edges)
	for to := 1; to < n; to++ {
		nearest := to >= 6 && to <= 9
		if worth := slices.Contains(pairs, topology.Pair{From: 0, To: to}); worth != nearest && (nearest || to <= 5) {
			t.Errorf("from 0 to %d is worth a measurement: %v", to, worth)
		}
	}
}
