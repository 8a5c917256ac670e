package topology

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func card(name, address string, node, speed int) NIC {
	return NIC{Name: name, Up: true, Speed: speed, Node: node, Addrs: []string{address}}
}

// Of rings that are as fast, the one is taken whose edges cross no router and no NUMA node, and the others' edges say so.
func TestCrossesNetworks(t *testing.T) {
	// a and b share one network, b and c, c and d, d and a another each; a and c, b and d have none in common.
	hosts := []Host{
		{Name: "a", NICs: []NIC{card("e0", "10.0.0.1/24", 0, 10), card("e1", "10.3.0.1/24", 0, 10)}},
		{Name: "c", NICs: []NIC{card("e0", "10.1.0.3/24", 0, 10), card("e1", "10.2.0.3/24", 0, 10)}},
		{Name: "b", NICs: []NIC{card("e0", "10.0.0.2/24", 0, 10), card("e1", "10.1.0.2/24", 0, 10)}},
		{Name: "d", NICs: []NIC{card("e0", "10.2.0.4/24", 0, 10), card("e1", "10.3.0.4/24", 0, 10)}},
	}
	ring := Order(hosts, nil)
	if !slices.Equal(ring.Order, []int{0, 2, 1, 3}) {
		t.Errorf("%s, should be a, b, c, d", ring.Line(hosts))
	}
	if strings.Contains(strings.Join(ring.Why, " "), "in common") {
		t.Errorf("%q", ring.Why)
	}
	if why := OrderBy(ByHost, hosts, nil).Why; !strings.Contains(why[0], "no network in common") || strings.Contains(why[1], "in common") {
		t.Errorf("in the order of the list: %q", why)
	}

	// Three hosts are in two networks, and two of them in the second only by a slow NIC on another node.
	far := func(name, first, second string) Host {
		return Host{Name: name, NICs: []NIC{card("e0", first, 0, 10000), card("e1", second, 1, 1000)}}
	}
	pair := []Host{far("a", "10.0.0.1/24", "10.9.0.1/24"), far("b", "10.1.0.2/24", "10.9.0.2/24")}
	if why := Order(pair, nil).Why[0]; !strings.Contains(why, "by a NIC that is not on NUMA node 0 of a, by a NIC that is not on NUMA node 0 of b") {
		t.Errorf("why %q", why)
	}
	if n := newNetworks(pair).crossings(0, 1); n != 2 {
		t.Errorf("%d crossings, should be 2", n)
	}
}

// A prefix of one address says nothing of who else is there: edges of such hosts have no reason to be taken or not.
func TestPrefixOfOneAddress(t *testing.T) {
	hosts := []Host{
		{Name: "a", NICs: []NIC{card("e0", "10.0.0.1/32", 0, 10)}},
		{Name: "b", NICs: []NIC{card("e0", "10.0.0.2/32", 0, 10)}},
		{Name: "c", NICs: []NIC{card("e0", "fd00::3/128", 0, 10)}},
	}
	quiet := func() {
		t.Helper()
		if why := strings.Join(Order(hosts, nil).Why, ", "); strings.Contains(why, "in common") {
			t.Errorf("why: %s", why)
		}
	}
	quiet()
	if rails := Rails(hosts[:1]); len(rails) != 0 {
		t.Errorf("one address is the network %v", rails)
	}
	// That they are in other networks besides, each in its own, does not mean that there is a router between them.
	for i := range hosts {
		hosts[i].NICs = append(hosts[i].NICs, card("e1", []string{"10.1.0.1/24", "10.2.0.1/24", "10.3.0.1/24"}[i], 0, 10))
	}
	quiet()
	// An address that is a NIC's second one takes nothing away from what its first one tells.
	for i := range hosts {
		hosts[i].NICs = hosts[i].NICs[1:]
		hosts[i].NICs[0].Addrs = append(hosts[i].NICs[0].Addrs, "10.9.9.9/32")
	}
	if why := Order(hosts, nil).Why[0]; !strings.Contains(why, "no network in common") {
		t.Errorf("why: %s", why)
	}
	hosts[1].NICs[0].Addrs = []string{"10.8.8.8/32", "10.1.0.2/24"}
	if n := newNetworks(hosts).crossings(0, 1); n != 0 {
		t.Errorf("%d crossings in one network", n)
	}
}

// Where all hosts are in the same networks no ring crosses less inside hosts than another.
func TestCrossingsConstant(t *testing.T) {
	hosts, _ := railed(6, 2)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range hosts {
		for k := range hosts[i].NICs {
			hosts[i].NICs[k].Node, hosts[i].NICs[k].Speed = rng.IntN(3)-1, rng.IntN(100)
		}
	}
	if newNetworks(hosts) != nil {
		t.Error("crossings are counted")
	}
	// And if they were: an edge takes the first network, so that what it crosses in a host is the host's alone.
	w := newNetworks(append(slices.Clone(hosts), Host{Name: "other"}))
	count := func(order []int) (n int64) {
		for i, from := range order {
			n += w.crossings(from, order[(i+1)%len(order)])
		}
		return n
	}
	first := count([]int{0, 1, 2, 3, 4, 5})
	for range 50 {
		if order := rng.Perm(6); count(order) != first {
			t.Errorf("ring %v crosses %d times, another one %d times", order, count(order), first)
		}
	}
}
