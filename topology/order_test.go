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

func host(name, esxi, rack, zone string) topology.Host {
	labels := map[string]string{}
	for label, value := range map[string]string{"esxi": esxi, "rack": rack, "zone": zone} {
		if value != "" {
			labels[label] = value
		}
	}
	return topology.Host{Name: name, Labels: labels}
}

func nic(speed int) []topology.NIC { return []topology.NIC{{Name: "eth0", Speed: speed, Up: true}} }

const gbit = 1e9 / 8

func TestOrder(t *testing.T) {
	slow, fast := 1*gbit, 9.4*gbit
	for _, c := range []struct {
		name  string
		hosts []topology.Host
		edges []topology.Edge
		line  string
		why   []string
	}{
		{"no hosts", nil, nil, "ring: no hosts", nil},
		{"one host", []topology.Host{{Name: "a"}}, nil, "ring: a → (a)", nil},
		{"nothing known", []topology.Host{{Name: "a"}, {Name: "b"}, {Name: "c"}}, nil, "ring: a → b → c → (a)",
			[]string{"nothing known, order of the host list", "nothing known, order of the host list",
				"nothing known, order of the host list"}},
		{"racks and ESXi hosts, interleaved", []topology.Host{host("a", "e1", "r1", ""), host("b", "e3", "r2", ""),
			host("c", "e2", "r1", ""), host("d", "e3", "r2", ""), host("e", "e1", "r1", "")}, nil,
			"ring: a → b → d → c → e → (a)",
			[]string{"from rack r1 to r2", "same esxi e3", "from rack r2 to r1", "same rack r1", "same esxi e1"}},
		{"zones", []topology.Host{host("a", "", "", "z1"), host("b", "", "", "z2"), host("c", "", "", "z1"), host("d", "", "", "")},
			nil, "ring: a → b → d → c → (a)",
			[]string{"from zone z1 to z2", "from zone z2 to unknown", "from zone unknown to z1", "same zone z1"}},
		{"bandwidth before crossings", []topology.Host{host("a", "", "r1", ""), host("b", "", "r1", ""),
			host("c", "", "r2", ""), host("d", "", "r2", "")},
			[]topology.Edge{{From: 0, To: 1, Bandwidth: slow}, {From: 0, To: 2, Bandwidth: fast}, {From: 0, To: 3, Bandwidth: fast},
				{From: 1, To: 2, Bandwidth: fast}, {From: 1, To: 3, Bandwidth: fast}, {From: 2, To: 3, Bandwidth: slow}},
			"ring: a → c → b → d → (a)",
			[]string{"from rack r1 to r2, 9.4 Gbit/s measured", "from rack r2 to r1, 9.4 Gbit/s measured",
				"from rack r1 to r2, 9.4 Gbit/s measured", "from rack r2 to r1, 9.4 Gbit/s measured"}},
		{"noise is not worth a crossing", []topology.Host{host("a", "", "r1", ""), host("b", "", "r2", ""),
			host("c", "", "r1", ""), host("d", "", "r2", "")},
			[]topology.Edge{{From: 0, To: 1, Bandwidth: 9.4 * gbit}, {From: 1, To: 2, Bandwidth: 9.4 * gbit},
				{From: 2, To: 3, Bandwidth: 9.4 * gbit}, {From: 3, To: 0, Bandwidth: 9.4 * gbit},
				{From: 0, To: 2, Bandwidth: 9 * gbit}, {From: 1, To: 3, Bandwidth: 9.1 * gbit}},
			"ring: a → b → d → c → (a)",
			[]string{"from rack r1 to r2, 9.4 Gbit/s measured", "same rack r2, 9.1 Gbit/s measured",
				"from rack r2 to r1, 9.4 Gbit/s measured", "same rack r1, 9 Gbit/s measured"}},
		{"least round-trip time, each way by itself", []topology.Host{{Name: "a"}, {Name: "b"}, {Name: "c"}},
			[]topology.Edge{{From: 0, To: 1, RTT: 300e-6}, {From: 0, To: 2, RTT: 50e-6}, {From: 2, To: 1, RTT: 50e-6},
				{From: 1, To: 0, RTT: 50e-6}, {From: 1, To: 2, RTT: 2.5e-3}},
			"ring: a → c → b → (a)", []string{"50 µs", "50 µs", "50 µs"}},
		{"speeds of NICs", []topology.Host{{Name: "a", NICs: nic(10000)}, {Name: "b", NICs: nic(25000)}, {Name: "c", NICs: nic(-1)}},
			nil, "ring: a → b → c → (a)", []string{"10 Gbit/s by NIC", "nothing known, order of the host list",
				"nothing known, order of the host list"}},
		{"nonsense is ignored", []topology.Host{{Name: "a"}, {Hostname: "b"}, {}},
			[]topology.Edge{{From: -1, To: 1, Bandwidth: 1}, {From: 0, To: 9, RTT: 1}, {From: 1, To: 1, Bandwidth: 5},
				{From: 0, To: 1, Bandwidth: math.NaN(), RTT: math.Inf(1)}, {From: 1, To: 2, Bandwidth: -4, RTT: -1}},
			"ring: a → b → host 2 → (a)", []string{"nothing known, order of the host list",
				"nothing known, order of the host list", "nothing known, order of the host list"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ring := topology.Order(c.hosts, c.edges)
			if line := ring.Line(c.hosts); line != c.line {
				t.Errorf("%s\nshould be\n%s", line, c.line)
			}
			if !slices.Equal(ring.Why, c.why) {
				t.Errorf("reasons\n%s\nshould be\n%s", strings.Join(ring.Why, "\n"), strings.Join(c.why, "\n"))
			}
		})
	}
}

// instance makes up hosts and measurements; few different values, so that there are ties.
func instance(rng *rand.Rand, n int) (hosts []topology.Host, edges []topology.Edge) {
	pick := func(values ...string) string { return values[rng.IntN(len(values))] }
	for i := range n {
		h := host(fmt.Sprintf("h%d", i), pick("e1", "e2", "e3"), pick("r1", "r2", ""), pick("z1", "z1", "z2"))
		h.NICs = nic([]int{1000, 10000, 10000, -1}[rng.IntN(4)])
		hosts = append(hosts, h)
	}
	for i := range n {
		for j := range n {
			if i != j && rng.IntN(3) > 0 {
				edges = append(edges, topology.Edge{From: i, To: j, RTT: float64(rng.IntN(4)) * 40e-6,
					Bandwidth: []float64{0, 1 * gbit, 5 * gbit, 9 * gbit, 9.5 * gbit, rng.Float64() * 10 * gbit}[rng.IntN(6)]})
			}
		}
	}
	return hosts, edges
}

// judge is the objective, written down from its description: what a ring is worth.
type judge struct {
	speed, rtt map[[2]int]float64
	hosts      []topology.Host
}

func newJudge(hosts []topology.Host, edges []topology.Edge) judge {
	j := judge{map[[2]int]float64{}, map[[2]int]float64{}, hosts}
	for _, e := range edges {
		if e.Bandwidth > 0 {
			j.speed[[2]int{e.From, e.To}] = e.Bandwidth
		}
		if e.RTT > 0 {
			j.rtt[[2]int{e.From, e.To}] = e.RTT
		}
	}
	known := map[[2]int]float64{}
	best := 0.0
	for a := range hosts {
		for b := range hosts {
			if a == b {
				continue
			}
			speed := j.speed[[2]int{a, b}]
			if speed == 0 {
				speed = j.speed[[2]int{b, a}]
			}
			if speed == 0 && hosts[a].NICs != nil && hosts[b].NICs != nil {
				speed = max(0, float64(min(hosts[a].NICs[0].Speed, hosts[b].NICs[0].Speed))*1e6/8)
			}
			known[[2]int{a, b}] = speed
			best = max(best, speed)
		}
	}
	for edge, speed := range known {
		if speed == 0 {
			known[edge] = max(best, 1)
		}
	}
	j.speed = known
	return j
}

func (j judge) worth(order []int) (bottleneck float64, crossings, rtt int) {
	bottleneck = math.Inf(1)
	for i, a := range order {
		b := order[(i+1)%len(order)]
		bottleneck = min(bottleneck, j.speed[[2]int{a, b}])
		crossed, took := j.edge(a, b)
		crossings, rtt = crossings+crossed, rtt+took
	}
	return bottleneck, crossings, rtt
}

func (j judge) edge(a, b int) (crossings, rtt int) {
	for _, label := range []string{"esxi", "rack", "zone"} {
		if j.hosts[a].Labels[label] != j.hosts[b].Labels[label] {
			crossings++
		}
	}
	seconds := j.rtt[[2]int{a, b}]
	if seconds == 0 {
		seconds = j.rtt[[2]int{b, a}]
	}
	return crossings, int(math.Round(seconds * 1e5))
}

// best goes through all rings in the order of the host list.
func (j judge) best() []int {
	fastest := 0.0
	permute(len(j.hosts), func(order []int) {
		bottleneck, _, _ := j.worth(order)
		fastest = max(fastest, bottleneck)
	})
	var best []int
	bestSpeed, bestCrossings, bestRTT := 0.0, 0, 0
	permute(len(j.hosts), func(order []int) {
		bottleneck, crossings, rtt := j.worth(order)
		if bottleneck < fastest*0.9 {
			return
		}
		if best == nil || crossings < bestCrossings || crossings == bestCrossings && (bottleneck > bestSpeed || bottleneck == bestSpeed && rtt < bestRTT) {
			best, bestSpeed, bestCrossings, bestRTT = slices.Clone(order), bottleneck, crossings, rtt
		}
	})
	return best
}

// permute calls f with all orders of 0 to n-1 that start with 0, in lexicographic order.
func permute(n int, f func([]int)) {
	order, used := []int{0}, make([]bool, n)
	var visit func()
	visit = func() {
		if len(order) == n {
			f(order)
			return
		}
		for i := 1; i < n; i++ {
			if !used[i] {
				order, used[i] = append(order, i), true
				visit()
				order, used[i] = order[:len(order)-1], false
			}
		}
	}
	visit()
}

// TestOrderIsTheBest compares rings of up to 9 hosts with the best of all there are.
func TestOrderIsTheBest(t *testing.T) {
	const small, large = 300, 5
	for seed := range uint64(small + large) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 2 + rng.IntN(6)
		if seed >= small {
			n = 9 // 40,320 rings
		}
		hosts, edges := instance(rng, n)
		judge := newJudge(hosts, edges)
		got, want := topology.Order(hosts, edges).Order, judge.best()
		if !slices.Equal(got, want) {
			b1, c1, r1 := judge.worth(got)
			b2, c2, r2 := judge.worth(want)
			t.Fatalf("seed %d: %v (%v, %d crossings, rtt %d), best is %v (%v, %d, %d)",
				seed, got, b1, c1, r1, want, b2, c2, r2)
		}
	}
}

// TestManyHosts: where a third of all edges are bad, the ring is without any of them.
func TestManyHosts(t *testing.T) {
	for _, n := range []int{10, 12, 13, 40, 200} {
		for seed := range uint64(10) {
			rng := rand.New(rand.NewPCG(seed, uint64(n)))
			good := make([]bool, n*n)
			for at := range good {
				good[at] = rng.IntN(3) > 0
			}
			var edges []topology.Edge
			for at, isGood := range good {
				e := topology.Edge{From: at / n, To: at % n, Bandwidth: 1 * gbit}
				if isGood {
					e.Bandwidth = 10 * gbit
				}
				edges = append(edges, e)
			}
			order := topology.Order(make([]topology.Host, n), edges).Order
			if !isRing(order, n) {
				t.Fatalf("%d hosts, seed %d: not a ring: %v", n, seed, order)
			}
			for i, a := range order {
				if b := order[(i+1)%n]; !good[a*n+b] {
					t.Errorf("%d hosts, seed %d: slow edge %d → %d, a ring without is possible", n, seed, a, b)
				}
			}
		}
	}
}

func isRing(order []int, n int) bool {
	sorted := slices.Sorted(slices.Values(order))
	for i, x := range sorted {
		if i != x {
			return false
		}
	}
	return len(order) == n && order[0] == 0
}

// TestThousandHosts has racks of ESXi hosts, shuffled, and one host with a slow NIC.
func TestThousandHosts(t *testing.T) {
	hosts := thousandHosts()
	ring := topology.Order(hosts, nil)
	if !isRing(ring.Order, len(hosts)) {
		t.Fatal("not a ring")
	}
	crossings := 0
	for i, a := range ring.Order {
		for _, label := range []string{"esxi", "rack"} {
			if hosts[a].Labels[label] != hosts[ring.Order[(i+1)%len(hosts)]].Labels[label] {
				crossings++
			}
		}
	}
	if want := 250 + 25; crossings != want { // ESXi hosts and racks, each left once
		t.Errorf("%d crossings, %d are enough", crossings, want)
	}
	if again := topology.Order(hosts, nil); !slices.Equal(again.Order, ring.Order) {
		t.Error("another ring the second time")
	}
}

func thousandHosts() []topology.Host {
	hosts := make([]topology.Host, 1000)
	for i, at := range rand.New(rand.NewPCG(1, 1)).Perm(len(hosts)) {
		hosts[at] = host(fmt.Sprintf("h%d", i), fmt.Sprintf("e%d", i/4), fmt.Sprintf("r%d", i/40), "")
		hosts[at].NICs = nic(10000)
	}
	hosts[500].NICs = nic(1000)
	return hosts
}

// allEdges is measurements of all edges, all different.
func allEdges(rng *rand.Rand, n int) (all []topology.Edge) {
	for i := range n {
		for j := range n {
			all = append(all, topology.Edge{From: i, To: j, RTT: rng.Float64() * 1e-3, Bandwidth: (1 + 9*rng.Float64()) * gbit})
		}
	}
	return all
}

// TestHardlyAnySpeed: a search ends though an edge is as slow as a number can be.
func TestHardlyAnySpeed(t *testing.T) {
	const n = 13 // more than rings are looked at one by one
	hosts := make([]topology.Host, n)
	for i := range n {
		hosts[i].Name = fmt.Sprint("h", i)
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
	order := topology.Order(hosts, edges).Order
	for i, from := range order {
		if to := order[(i+1)%n]; from+to == 1 {
			t.Errorf("the ring goes from %d to %d: %v", from, to, order)
		}
	}
}

func FuzzOrder(f *testing.F) {
	f.Add(uint64(1), uint8(5), 1.0, 1.0)
	f.Add(uint64(2), uint8(14), math.Inf(1), math.NaN())
	f.Fuzz(func(t *testing.T, seed uint64, n uint8, bandwidth, rtt float64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		hosts, edges := instance(rng, int(n%20))
		edges = append(edges, topology.Edge{From: 0, To: 1, Bandwidth: bandwidth, RTT: rtt},
			topology.Edge{From: 1 << 40, To: -1, Bandwidth: bandwidth, RTT: rtt})
		if ring := topology.Order(hosts, edges); len(hosts) > 0 && !isRing(ring.Order, len(hosts)) {
			t.Fatalf("not a ring: %v", ring.Order)
		}
	})
}

func BenchmarkOrder(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 5))
	twelve, edges := instance(rng, 12)
	b.Run("12", func(b *testing.B) {
		for b.Loop() {
			topology.Order(twelve, edges)
		}
	})
	thousand := thousandHosts()
	b.Run("1000", func(b *testing.B) {
		for b.Loop() {
			topology.Order(thousand, nil)
		}
	})
	all := allEdges(rng, len(thousand))
	b.Run("1000measured", func(b *testing.B) {
		for b.Loop() {
			topology.Order(thousand, all)
		}
	})
}
