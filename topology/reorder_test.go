package topology_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gorun/topology"
)

func named(names ...string) (hosts []topology.Host) {
	for _, name := range names {
		hosts = append(hosts, topology.Host{Name: name, NICs: nic(10000)})
	}
	return hosts
}

// between is every edge, both ways, at one bandwidth, but for the pairs given.
func between(n int, bandwidth float64, others map[topology.Pair]float64) (edges []topology.Edge) {
	for from := range n {
		for to := range n {
			b := bandwidth
			if other, ok := others[topology.Pair{From: from, To: to}]; ok {
				b = other
			}
			if from != to && b > 0 {
				edges = append(edges, topology.Edge{From: from, To: to, Bandwidth: b, InJob: true})
			}
		}
	}
	return edges
}

func TestReorder(t *testing.T) {
	slow := func(b float64) map[topology.Pair]float64 {
		return map[topology.Pair]float64{{From: 1, To: 2}: b, {From: 2, To: 1}: b}
	}
	hosts := named("a", "b", "c", "d")
	present := []int{0, 1, 2, 3}
	change, pays := topology.Reorder(topology.ByMeasured, hosts, between(4, 9*gbit, slow(gbit)), present)
	if !pays || change.Now != gbit || change.Then != 9*gbit || len(change.Unsure) > 0 || change.Why != "its slowest edge carries 9 Gbit/s instead of 1 Gbit/s" {
		t.Errorf("a slow edge: %v %+v", pays, change)
	}
	for i, from := range change.Ring.Order {
		if to := change.Ring.Order[(i+1)%4]; from+to == 3 && from*to == 2 {
			t.Errorf("the ring still goes over the slow edge: %v", change.Ring.Order)
		}
	}
	for _, why := range change.Ring.Why {
		if why != "9 Gbit/s measured in the job" {
			t.Errorf("why an edge is there: %q", why)
		}
	}

	for name, tc := range map[string]struct {
		by    topology.By
		edges []topology.Edge
		order []int
	}{
		"all alike":           {topology.ByMeasured, between(4, 9*gbit, nil), present},
		"a little slower":     {topology.ByMeasured, between(4, 9*gbit, slow(7.5*gbit)), present},
		"nothing measured":    {topology.ByMeasured, nil, present},
		"not by measurements": {topology.ByTopology, between(4, 9*gbit, slow(gbit)), present},
		"as the list is":      {topology.ByHost, between(4, 9*gbit, slow(gbit)), present},
		"another world":       {topology.ByMeasured, between(4, 9*gbit, slow(gbit)), []int{0, 1, 2}},
		"it is the best":      {topology.ByMeasured, between(4, 9*gbit, slow(gbit)), []int{3, 1, 0, 2}},
		"strange edges":       {topology.ByMeasured, []topology.Edge{{From: -1, To: 9, Bandwidth: 1}, {From: 2, To: 2, Bandwidth: 1}}, present},
	} {
		if change, pays := topology.Reorder(tc.by, hosts, tc.edges, tc.order); pays || change.Ring.Order != nil {
			t.Errorf("%s: %+v pays", name, change)
		}
	}

	// Only the present ring is measured: the others are said to be as fast as their NICs, which is to be found out.
	var used []topology.Edge
	for i := range present {
		used = append(used, topology.Edge{From: i, To: (i + 1) % 4, Bandwidth: []float64{9, 1, 9, 9}[i] * gbit, InJob: true})
	}
	change, pays = topology.Reorder(topology.ByMeasured, hosts, used, present)
	if !pays || len(change.Unsure) == 0 {
		t.Fatalf("edges that nobody measured: %v %+v", pays, change)
	}
	for _, pair := range change.Unsure { // and they are slow
		used = append(used, topology.Edge{From: pair.From, To: pair.To, Bandwidth: gbit, InJob: true})
	}
	for range 12 {
		if change, pays = topology.Reorder(topology.ByMeasured, hosts, used, present); !pays {
			break
		}
		for _, pair := range change.Unsure {
			used = append(used, topology.Edge{From: pair.From, To: pair.To, Bandwidth: gbit, InJob: true})
		}
	}
	if pays {
		t.Errorf("all others are as slow, but: %+v", change)
	}
}

// Where one way has become slow and all others are alike, the ring goes around it and keeps what it can: a host has to go
// elsewhere, which is three edges.
func TestReorderKeepsEdges(t *testing.T) {
	for n := 5; n <= 40; n += 5 {
		hosts := make([]topology.Host, n)
		present := rand.New(rand.NewPCG(uint64(n), 3)).Perm(n)
		a, b := present[n/2], present[n/2+1]
		change, pays := topology.Reorder(topology.ByMeasured, hosts, between(n, 9*gbit, map[topology.Pair]float64{{From: a, To: b}: gbit, {From: b, To: a}: gbit}), present)
		if !pays {
			t.Fatalf("%d hosts: a ring without the slow edge does not pay", n)
		}
		next := map[int]int{}
		for i, from := range present {
			next[from] = present[(i+1)%n]
		}
		kept := 0
		for i, from := range change.Ring.Order {
			if next[from] == change.Ring.Order[(i+1)%n] {
				kept++
			}
		}
		if kept < n-3 {
			t.Errorf("%d hosts: %d edges of %v are kept in %v, should be %d", n, kept, present, change.Ring.Order, n-3)
		}
	}
}

// After a VM has moved, the labels of its ESXi host are others: fewer crossings pay by themselves.
func TestReorderByLabels(t *testing.T) {
	hosts := named("a", "b", "c", "d")
	for i, esxi := range []string{"e1", "e2", "e1", "e2"} {
		hosts[i].Labels = map[string]string{"esxi": esxi}
	}
	change, pays := topology.Reorder(topology.ByTopology, hosts, nil, []int{0, 1, 2, 3})
	if !pays || change.Fewer != 2 || len(change.Unsure) > 0 || change.Why != "it crosses 2 borders less" {
		t.Errorf("%v %+v", pays, change)
	}
	if again, pays := topology.Reorder(topology.ByTopology, hosts, nil, change.Ring.Order); pays {
		t.Errorf("and then once more: %+v", again)
	}
}

// Whatever the numbers, a change that pays is a ring of all hosts that is better, and after it none pays.
func TestReorderSettles(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		n := 3 + rng.IntN(7)
		hosts := make([]topology.Host, n)
		for i := range hosts {
			hosts[i] = topology.Host{Labels: map[string]string{"rack": string(rune('a' + rng.IntN(3)))}}
		}
		edges := between(n, gbit, nil)
		for i := range edges {
			edges[i].Bandwidth *= 0.2 + rng.Float64()
		}
		order := rng.Perm(n)
		change, pays := topology.Reorder(topology.ByMeasured, hosts, edges, order)
		if !pays {
			continue
		}
		if sorted := slices.Sorted(slices.Values(change.Ring.Order)); len(sorted) != n || sorted[0] != 0 || sorted[n-1] != n-1 || len(slices.Compact(sorted)) != n {
			t.Fatalf("seed %d: %v is no ring of %d hosts", seed, change.Ring.Order, n)
		}
		if change.Ring.Order[0] != order[0] {
			t.Errorf("seed %d: it begins with %d, not with %d as before", seed, change.Ring.Order[0], order[0])
		}
		if change.Then < 1.25*change.Now && (change.Fewer <= 0 || change.Then < 0.9*change.Now) {
			t.Errorf("seed %d: %+v is not worth it", seed, change)
		}
		if again, pays := topology.Reorder(topology.ByMeasured, hosts, edges, change.Ring.Order); pays {
			t.Errorf("seed %d: after %+v another one: %+v", seed, change, again)
		}
	}
}
