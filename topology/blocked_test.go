package topology_test

import (
	"slices"
	"testing"

	"gorun/topology"
)

// goes reports whether a ring goes between two hosts, in any direction.
func goes(order []int, a, b int) bool {
	for i, from := range order {
		to := order[(i+1)%len(order)]
		if from == a && to == b || from == b && to == a {
			return true
		}
	}
	return false
}

// TestBlocked: a way that could not be measured is worse than all others, whatever speed interfaces report and however
// slow they are, and only where there is no other one data takes it. One that was never tried is as good as the best.
func TestBlocked(t *testing.T) {
	measured := func(n int, bandwidth, rtt float64) (edges []topology.Edge) {
		for from := range n {
			for to := range n {
				if from < to && (from != 1 || to != 2) {
					edges = append(edges, topology.Edge{From: from, To: to, Bandwidth: bandwidth, RTT: rtt})
				}
			}
		}
		return edges
	}
	for _, n := range []int{4, 10, 20} {
		hosts := make([]topology.Host, n)
		for i := range hosts {
			hosts[i] = topology.Host{Name: string(rune('a' + i)), NICs: nic(100_000)}
		}
		for name, edges := range map[string][]topology.Edge{"bandwidths": measured(n, gbit, 0), "round trips": measured(n, 0, 2e-4),
			"both": measured(n, gbit, 2e-4), "nothing else": nil} {
			for _, way := range []topology.Pair{{From: 1, To: 2}, {From: 2, To: 1}} {
				ring := topology.Order(hosts, append(edges, topology.Edge{From: way.From, To: way.To, Blocked: true}))
				if goes(ring.Order, 1, 2) {
					t.Errorf("%d hosts, %s: ring %v goes %v, which could not be measured", n, name, ring.Order, way)
				}
			}
		}
		// Measured once, in a job, it is a way as others.
		edges := append(measured(n, gbit, 0), topology.Edge{From: 1, To: 2, Blocked: true}, topology.Edge{From: 1, To: 2, Bandwidth: 2 * gbit, InJob: true},
			topology.Edge{From: 2, To: 1, Bandwidth: 2 * gbit, InJob: true})
		if ring := topology.Order(hosts, edges); !goes(ring.Order, 1, 2) {
			t.Errorf("%d hosts: ring %v does not go a way that was measured since", n, ring.Order)
		}
	}
	hosts := []topology.Host{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	edges := append(measured(3, gbit, 0), topology.Edge{From: 2, To: 1, Blocked: true})
	ring := topology.Order(hosts, edges)
	if want := []string{"1 Gbit/s measured", "could not be measured", "1 Gbit/s measured"}; !slices.Equal(ring.Why, want) {
		t.Errorf("reasons %q, should be %q", ring.Why, want)
	}
	if legs := ring.Legs(hosts, edges); legs[1].Bandwidth != 0 || legs[1].Slowest || legs[1].Source != "unknown" {
		t.Errorf("nobody knows how fast it is: %+v", legs[1])
	}
}

// TestBlockedRail: two hosts that do not reach each other in one of several networks are not neighbours, if that can
// be.
func TestBlockedRail(t *testing.T) {
	rails := []string{"10.0.0.0/24", "10.0.1.0/24"}
	hosts := make([]topology.Host, 4)
	var edges []topology.Edge
	for i := range hosts {
		for k, name := range []string{"e0", "e1"} {
			hosts[i].NICs = append(hosts[i].NICs, topology.NIC{Name: name, Speed: 10_000, Up: true, Addrs: []string{"10.0." + string(rune('0'+k)) + ".1/24"}})
		}
		for to := range i {
			for _, rail := range rails {
				e := topology.Edge{From: i, To: to, Rail: rail, Bandwidth: gbit}
				if i == 2 && to == 1 && rail == rails[1] {
					e.Bandwidth, e.Blocked = 0, true
				}
				edges = append(edges, e)
			}
		}
	}
	ring := topology.Order(hosts, topology.WithSums(hosts, edges, rails))
	if goes(ring.Order, 1, 2) {
		t.Errorf("ring %v: %q", ring.Order, ring.Why)
	}
}
