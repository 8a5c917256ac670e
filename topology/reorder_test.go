package topology_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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
	change, pays := topology.Reorder(t.Context(), topology.ByMeasured, hosts, between(4, 9*gbit, slow(gbit)), present)
	if !pays || change.Now != gbit || change.Then != 9*gbit || len(change.Unsure) > 0 || change.Why != "its slowest edge carries 9 Gbit/s instead of 1 Gbit/s" {
		t.Errorf("a slow edge: %v %+v", pays, change)
	}
	for i, from := range change.Ring.Order {
		if to := change.Ring.Order[(i+1)%4]; from+to == 3 && from*to == 2 {
			t.Errorf("the ring still goes over the slow edge: %v", change.Ring.Order)
		}
	}
	for i, from := range change.Ring.Order {
		want := "9 Gbit/s measured in the job"
		if change.Ring.Order[(i+1)%4] == (from+1)%4 { // one of the present ring
			want += ", as before"
		}
		if why := change.Ring.Why[i]; why != want {
			t.Errorf("why an edge is there: %q, should be %q", why, want)
		}
	}
	labelled := named("a", "b", "c", "d")
	for i := range labelled {
		labelled[i].Labels = map[string]string{"rack": []string{"r", "s"}[i%2]}
	}
	change, pays = topology.Reorder(t.Context(), topology.ByTopology, labelled, nil, present)
	if why := strings.Join(change.Ring.Why, "; "); !pays || strings.Count(why, ", by labels and NICs") != 4 || !strings.Contains(why, "by labels and NICs, as before") {
		t.Errorf("by labels: %v, %q", pays, why)
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
		if change, pays := topology.Reorder(t.Context(), tc.by, hosts, tc.edges, tc.order); pays || change.Ring.Order != nil {
			t.Errorf("%s: %+v pays", name, change)
		}
	}

	// Only the present ring is measured: the others count as being as fast as their NICs, which is to be found out.
	var used []topology.Edge
	for i := range present {
		used = append(used, topology.Edge{From: i, To: (i + 1) % 4, Bandwidth: []float64{9, 1, 9, 9}[i] * gbit, InJob: true})
	}
	change, pays = topology.Reorder(t.Context(), topology.ByMeasured, hosts, used, present)
	if !pays || len(change.Unsure) == 0 {
		t.Fatalf("edges that nobody measured: %v %+v", pays, change)
	}
	for _, pair := range change.Unsure { // and they are slow
		used = append(used, topology.Edge{From: pair.From, To: pair.To, Bandwidth: gbit, InJob: true})
	}
	for range 12 {
		if change, pays = topology.Reorder(t.Context(), topology.ByMeasured, hosts, used, present); !pays {
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

// kept counts the edges that two rings have in common.
func kept(before, after []int) (n int) {
	next := map[int]int{}
	for i, from := range before {
		next[from] = before[(i+1)%len(before)]
	}
	for i, from := range after {
		if next[from] == after[(i+1)%len(after)] {
			n++
		}
	}
	return n
}

// Where ways have become slow and the others are as alike as measurements are, the ring goes around those and keeps
// what it can: for each a host has to go elsewhere, which is three edges. Nor does it change for what is left of the
// differences.
func TestReorderKeepsEdges(t *testing.T) {
	for _, n := range []int{10, 12, 13, 16, 40, 200} {
		for seed := range uint64(5) {
			rng := rand.New(rand.NewPCG(uint64(n), seed))
			hosts, present := make([]topology.Host, n), rng.Perm(n)
			for i, host := range present {
				hosts[host].Labels = map[string]string{"rack": fmt.Sprint(i * (n / 5) / n)} // and the present ring leaves each once
			}
			bad := map[topology.Pair]bool{}
			for range 1 + n/40 {
				at := rng.IntN(n)
				a, b := present[at], present[(at+1)%n]
				bad[topology.Pair{From: a, To: b}], bad[topology.Pair{From: b, To: a}] = true, true
			}
			measure := func() []topology.Edge {
				edges := between(n, 9*gbit, nil)
				for i, e := range edges {
					edges[i].Bandwidth *= 0.98 + 0.04*rng.Float64()
					edges[i].RTT = 50e-6 * (0.5 + rng.Float64())
					if bad[topology.Pair{From: e.From, To: e.To}] {
						edges[i].Bandwidth /= 9
					}
				}
				return edges
			}
			change, pays := topology.Reorder(t.Context(), topology.ByMeasured, hosts, measure(), present)
			if !pays || change.Then < 8*gbit || change.Fewer != 0 {
				t.Fatalf("%d hosts, seed %d: a ring without the slow edges: pays %v, %v instead of %v, %d fewer crossings", n, seed, pays, change.Then, change.Now, change.Fewer)
			}
			if k, want := kept(present, change.Ring.Order), n-3*len(bad)/2; k < want {
				t.Errorf("%d hosts, seed %d: %d edges of %v are kept in %v, should be %d", n, seed, k, present, change.Ring.Order, want)
			}
			if again, pays := topology.Reorder(t.Context(), topology.ByMeasured, hosts, measure(), change.Ring.Order); pays {
				t.Errorf("%d hosts, seed %d: measured again, another ring pays: %s", n, seed, again.Why)
			}
		}
	}
}

// What changes come to is about as good as a ring from nothing, soon.
func TestReorderIsGood(t *testing.T) {
	ours, fromNothing := 0, 0 // crossings
	for _, n := range []int{8, 20, 60} {
		for seed := range uint64(8) {
			rng := rand.New(rand.NewPCG(uint64(n), seed))
			hosts, edges := instance(rng, n)
			now, changes := rng.Perm(n), 0
			for ; changes < 10; changes++ {
				change, pays := topology.Reorder(t.Context(), topology.ByMeasured, hosts, edges, now)
				if !pays {
					break
				}
				now = change.Ring.Order
			}
			if changes > 5 {
				t.Errorf("%d hosts, seed %d: %d changes one after the other", n, seed, changes)
			}
			judge := newJudge(hosts, edges)
			got, crossings, _ := judge.worth(now)
			best, least, _ := judge.worth(topology.Order(hosts, edges).Order)
			ours, fromNothing = ours+crossings, fromNothing+least
			if got*1.4 < best { // a quarter, and the tolerance
				t.Errorf("%d hosts, seed %d: the slowest edge has %s, from nothing %s", n, seed, topology.BitRate(got), topology.BitRate(best))
			}
		}
	}
	if t.Logf("%d crossings, from nothing %d", ours, fromNothing); float64(ours) > 1.1*float64(fromNothing) {
		t.Errorf("%d crossings, from nothing %d", ours, fromNothing)
	}
}

// A ring that lost hosts is what is left of it, and new ones come where they cross least, or else where it is fastest.
func TestJoin(t *testing.T) {
	racks := named("a", "b", "c", "d", "e")
	for i, rack := range []string{"r1", "r2", "r1", "r2", "r1"} {
		racks[i].Labels = map[string]string{"rack": rack}
	}
	slow := map[topology.Pair]float64{}
	for _, to := range []int{0, 1, 2} {
		slow[topology.Pair{From: 4, To: to}], slow[topology.Pair{From: to, To: 4}] = gbit, gbit
	}
	for _, c := range []struct {
		name        string
		hosts       []topology.Host
		edges       []topology.Edge
		order, want []int
	}{
		{"all are there", named("a", "b", "c"), nil, []int{2, 0, 1}, []int{2, 0, 1}},
		{"nothing known", named("a", "b", "c", "d"), nil, []int{1, 0}, []int{1, 0, 2, 3}},
		{"one is left", named("a", "b"), nil, []int{1}, []int{1, 0}},
		{"racks", racks, nil, []int{0, 1, 2}, []int{0, 1, 3, 2, 4}},
		{"slow ways", named("a", "b", "c", "d", "e", "f"), between(6, 9*gbit, slow), []int{0, 3, 5, 2, 1}, []int{0, 3, 4, 5, 2, 1}},
	} {
		before := slices.Clone(c.order)
		if got := topology.Join(c.hosts, c.edges, c.order); !slices.Equal(got, c.want) || !slices.Equal(c.order, before) {
			t.Errorf("%s: %v into %v is %v, want %v", c.name, len(c.hosts), before, got, c.want)
		}
	}
}

// After a VM has moved, the labels of its ESXi host are others: fewer crossings pay by themselves.
func TestReorderByLabels(t *testing.T) {
	hosts := named("a", "b", "c", "d")
	for i, esxi := range []string{"e1", "e2", "e1", "e2"} {
		hosts[i].Labels = map[string]string{"esxi": esxi}
	}
	change, pays := topology.Reorder(t.Context(), topology.ByTopology, hosts, nil, []int{0, 1, 2, 3})
	if !pays || change.Fewer != 2 || len(change.Unsure) > 0 || change.Why != "it crosses 2 borders less" {
		t.Errorf("%v %+v", pays, change)
	}
	if again, pays := topology.Reorder(t.Context(), topology.ByTopology, hosts, nil, change.Ring.Order); pays {
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
		change, pays := topology.Reorder(t.Context(), topology.ByMeasured, hosts, edges, order)
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
		if again, pays := topology.Reorder(t.Context(), topology.ByMeasured, hosts, edges, change.Ring.Order); pays {
			t.Errorf("seed %d: after %+v another one: %+v", seed, change, again)
		}
	}
}

func BenchmarkReorder(b *testing.B) {
	hosts := thousandHosts()
	hosts[500].NICs = nic(10000)
	rng := rand.New(rand.NewPCG(5, 5))
	var edges []topology.Edge
	for from := range hosts {
		for to := range hosts {
			if from != to {
				edges = append(edges, topology.Edge{From: from, To: to, RTT: rng.Float64() * 1e-3, Bandwidth: (9 + 0.2*rng.Float64()) * gbit})
			}
		}
	}
	present := topology.Order(hosts, edges).Order
	b.Run("1000measured", func(b *testing.B) {
		for b.Loop() {
			topology.Reorder(b.Context(), topology.ByMeasured, hosts, edges, present)
		}
	})
	at := slices.IndexFunc(edges, func(e topology.Edge) bool { return e.From == present[99] && e.To == present[100] })
	edges[at].Bandwidth = gbit
	b.Run("1000measuredSlowEdge", func(b *testing.B) {
		for b.Loop() {
			topology.Reorder(b.Context(), topology.ByMeasured, hosts, edges, present)
		}
	})
}

// TestHardlyAnySpeed: a search ends though an edge is as slow as a number can be.
func TestHardlyAnySpeed(t *testing.T) {
	const n = 13 // more than rings are looked at one by one
	hosts := make([]topology.Host, n)
	order := make([]int, n)
	for i := range n {
		hosts[i].Name, order[i] = fmt.Sprint("h", i), i
	}
	edges := []topology.Edge{{From: 0, To: 1, Bandwidth: math.SmallestNonzeroFloat64}}
	for from := range n {
		for to := range n {
			if from != to && from+to != 1 {
				edges = append(edges, topology.Edge{From: from, To: to, Bandwidth: 1e9})
			}
		}
	}
	if legs := topology.Order(hosts[:2], edges[:1]).Legs(hosts[:2], edges[:1]); legs[0].Bandwidth < 1 {
		t.Fatalf("a search would go down to %g bytes/s in steps of a tenth, and not come there", legs[0].Bandwidth)
	}
	change, pays := topology.Reorder(t.Context(), topology.ByMeasured, hosts, edges, order)
	if !pays {
		t.Fatal("another ring does not pay")
	}
	for i, from := range change.Ring.Order {
		if to := change.Ring.Order[(i+1)%n]; from+to == 1 {
			t.Errorf("the ring goes from %d to %d: %v", from, to, change.Ring.Order)
		}
	}
}
