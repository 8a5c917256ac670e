package topology

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const mbit = 1e6 / 8

// railed are hosts with a NIC in each of so many networks.
func railed(n, networks int) (hosts []Host, rails []string) {
	for i := range n {
		h := Host{Name: fmt.Sprintf("h%d", i)}
		for k := range networks {
			h.NICs = append(h.NICs, NIC{Name: fmt.Sprintf("e%d", k), Up: true, Addrs: []string{fmt.Sprintf("10.%d.0.%d/24", k, i+1)}})
		}
		hosts = append(hosts, h)
	}
	return hosts, Rails(hosts)
}

// onRails are edges with the bandwidth that f returns in Mbit/s.
func onRails(n int, rails []string, f func(rail, from, to int) float64) (edges []Edge) {
	for k, rail := range rails {
		for from := range n {
			for to := range n {
				if from != to {
					edges = append(edges, Edge{From: from, To: to, Bandwidth: f(k, from, to) * mbit, Rail: rail})
				}
			}
		}
	}
	return edges
}

func planned(hosts []Host, edges []Edge, rails []string) Ring {
	edges = WithSums(hosts, edges, rails)
	return OrderBy(context.Background(), ByMeasured, hosts, edges).OverRails(context.Background(), ByMeasured, hosts, edges, rails)
}

func TestRails(t *testing.T) {
	hosts, rails := railed(3, 2)
	if !slices.Equal(rails, []string{"10.0.0.0/24", "10.1.0.0/24"}) {
		t.Errorf("rails %v", rails)
	}
	slices.Reverse(hosts[1].NICs)
	hosts[2].NICs[0].Addrs = []string{"fe80::1/64", "fd00::1/64", "10.0.0.9/24"}
	if again := Rails(hosts); !slices.Equal(again, rails) {
		t.Errorf("with NICs in another order, and more addresses: %v", again)
	}
	hosts[2].NICs[0].Up = false
	if left := Rails(hosts); len(left) != 0 {
		t.Errorf("of a host that is not in one of them: %v", left)
	}
}

// Ways that are slow in different places have rings of their own; everything that is not measured, or nothing at all to
// gain, has one.
func TestOverRails(t *testing.T) {
	hosts, rails := railed(4, 2)
	slow := [2]string{"01 10 23 32", "02 20 13 31"}
	crossed := func(rail, from, to int) float64 {
		if strings.Contains(slow[rail], fmt.Sprint(from, to)) || strings.Contains(slow[rail], fmt.Sprintf("%d%d", from, to)) {
			return 100
		}
		return 1000 * float64(3-rail) // the second network is slower
	}
	edges := onRails(4, rails, crossed)
	r := planned(hosts, edges, rails)
	if len(r.Rails) != 2 || r.Rails[0].Share != 600 || r.Rails[1].Share != 400 || r.Rails[0].Rail != rails[0] {
		t.Fatalf("%+v", r)
	}
	if want := "large tensors take 2 rings at once, one in each network: they carry 5 Gbit/s, one ring over all 3.1 Gbit/s"; r.Split != want {
		t.Errorf("split %q, should be %q", r.Split, want)
	}
	for i, rr := range r.Rails {
		for _, leg := range rr.Legs(hosts, edges) {
			if leg.Bandwidth != crossed(i, leg.From, leg.To)*mbit || leg.Bandwidth < 1000*mbit || !leg.Measured {
				t.Errorf("ring in %s: %+v", rr.Rail, leg)
			}
		}
	}
	if again := planned(hosts, edges, rails); fmt.Sprint(again) != fmt.Sprint(r) {
		t.Errorf("another time %+v", again)
	}

	// NICs that are slow do not make it worthwhile: any ring passes all of them.
	byNIC := onRails(4, rails, func(rail, from, to int) float64 {
		if from == rail || to == rail {
			return 100
		}
		return 1000
	})
	if r := planned(hosts, byNIC, rails); len(r.Rails) != 0 || r.Split != "one ring over 2 networks: it carries 1.1 Gbit/s, a ring for each network 200 Mbit/s" {
		t.Errorf("one slow NIC in each network: %+v", r)
	}
	for what, r := range map[string]Ring{
		"not measured in one network": planned(hosts, slices.DeleteFunc(slices.Clone(edges), func(e Edge) bool { return e.Rail == rails[1] }), rails),
		"one network only":            planned(hosts, edges, rails[:1]),
		"by topology":                 OrderBy(t.Context(), ByTopology, hosts, edges).OverRails(t.Context(), ByTopology, hosts, edges, rails),
	} {
		if len(r.Rails) != 0 || len(r.Order) != 4 {
			t.Errorf("%s: %+v", what, r)
		}
	}
	hosts, rails = railed(2, 2)
	if r := planned(hosts, onRails(2, rails, func(int, int, int) float64 { return 1 }), rails); len(r.Rails) != 0 {
		t.Errorf("two hosts: %+v", r)
	}
	if edges := WithSums(hosts, []Edge{{To: 1, Bandwidth: 5, Rail: rails[0]}}, rails[:1]); len(edges) != 3 || edges[0] != (Edge{To: 1, Bandwidth: 5}) || edges[1] != (Edge{From: 1, Bandwidth: 5}) {
		t.Errorf("what is known of the one network is what there is: %+v", edges)
	}
}

// TestOneRingOrSeveral compares one ring over all networks, a ring for each, and what is chosen, with the best there is
// of each kind by trying all orders.
func TestOneRingOrSeveral(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "# slowest edges of one ring over two networks, and of a ring in each together, Gbit/s: means of 50 clusters\n")
	fmt.Fprintf(&b, "#%5s  %-32s %6s %8s %7s %10s\n", "hosts", "slow are, of 1 Gbit/s", "one", "several", "chosen", "several in")
	for _, n := range []int{3, 4, 5, 6, 8} {
		hosts, rails := railed(n, 2)
		for kind, slow := range []string{"NICs: 1 of 4", "ways: 1 of 4", "ways: 1 of 2"} {
			rng := rand.New(rand.NewPCG(uint64(n), uint64(kind)))
			var one, several, chosen float64
			taken := 0
			for range 50 {
				nics := make([]float64, 2*n)
				for i := range nics {
					nics[i] = 1000
					if rng.IntN(4) == 0 {
						nics[i] = 100 + 400*rng.Float64()
					}
				}
				ways := make([]float64, 2*n*n)
				for i := range ways {
					ways[i] = 1000
					if rng.IntN([]int{1, 4, 2}[kind]) == 0 {
						ways[i] = 100 + 400*rng.Float64()
					}
				}
				speed := func(rail, from, to int) float64 {
					if kind == 0 {
						return min(nics[rail*n+from], nics[rail*n+to])
					}
					return ways[(rail*n+min(from, to))*n+max(from, to)]
				}
				r := planned(hosts, onRails(n, rails, speed), rails)
				bestOne, bestEach := bestOf(n, func(i, j int) float64 { return speed(0, i, j) + speed(1, i, j) }), 0.0
				for rail := range 2 {
					bestEach += bestOf(n, func(i, j int) float64 { return speed(rail, i, j) })
				}
				got := math.Inf(1)
				for i, from := range r.Order {
					to := r.Order[(i+1)%n]
					got = min(got, speed(0, from, to)+speed(1, from, to))
				}
				if len(r.Rails) > 0 {
					got = (r.Rails[0].Speed + r.Rails[1].Speed) / mbit
					taken++
				}
				// One ring gives up to a tenth for fewer crossings, and several must be a tenth faster.
				if best := max(bestOne, bestEach); got < best*(1-tolerance)/worthRings {
					t.Errorf("%d hosts, %s: %.0f Mbit/s, one ring has %.0f, several %.0f", n, slow, got, bestOne, bestEach)
				}
				if kind == 0 && bestEach > bestOne*(1+1e-9) {
					t.Errorf("%d hosts with slow NICs: one ring has %.0f Mbit/s, several %.0f", n, bestOne, bestEach)
				}
				one, several, chosen = one+bestOne/50e3, several+bestEach/50e3, chosen+got/50e3
			}
			fmt.Fprintf(&b, "%6d  %-32s %6.2f %8.2f %7.2f %7d/50\n", n, slow, one, several, chosen, taken)
		}
	}
	if *table {
		fmt.Print(b.String())
	}
}

// bestOf is the slowest edge of the best of all rings.
func bestOf(n int, speed func(i, j int) float64) (best float64) {
	order := make([]int, 1, n)
	var try func(low float64)
	try = func(low float64) {
		if low <= best {
			return
		}
		if len(order) == n {
			best = max(best, min(low, speed(order[n-1], 0)))
			return
		}
		for next := 1; next < n; next++ {
			if !slices.Contains(order, next) {
				last := order[len(order)-1]
				order = append(order, next)
				try(min(low, speed(last, next)))
				order = order[:len(order)-1]
			}
		}
	}
	try(math.Inf(1))
	return best
}
