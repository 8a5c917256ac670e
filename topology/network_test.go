package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func card(name, address string, node, speed int) NIC {
	return NIC{Name: name, Up: true, Speed: speed, Node: node, Addrs: []string{address}}
}

// Of rings that are as fast, the one is taken whose edges cross no router and no NUMA node, and the others' edges show
// it.
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
	if why := OrderBy(t.Context(), ByHost, hosts, nil).Why; !strings.Contains(why[0], "no network in common") || strings.Contains(why[1], "in common") {
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

// Where data goes over RDMA, devices and not NICs are what edges have: how fast they are, and where the engine runs. It
// takes two hosts with a device.
func TestRingOverRDMA(t *testing.T) {
	host := func(name, address, device string) Host {
		h := Host{Name: name, Data: "e0", DataRDMA: device, NICs: []NIC{card("e0", address, 0, 10_000)}}
		if device != "" {
			h.RDMA = []RDMA{{Name: "mlx5_9"}, {Name: device, Node: 1, Ports: []Port{
				{Number: 1, Active: true, Speed: 100_000, Link: "InfiniBand"}, {Number: 2, Speed: 400_000}}}}
		}
		return h
	}
	hosts := []Host{host("a", "10.0.0.1/24", "mlx5_0"), host("b", "10.0.0.2/24", ""), host("c", "10.0.0.3/24", "mlx5_0"),
		host("d", "10.0.0.4/24", "")}
	const slow = "10 Gbit/s by NIC, the bottleneck"
	ring := Order(hosts, nil)
	for i, want := range map[[2]int]string{{0, 1}: "by a NIC that is not on NUMA node 1 of a, " + slow, {1, 3}: slow,
		{3, 2}: "by a NIC that is not on NUMA node 1 of c, " + slow, {2, 0}: "100 Gbit/s by RDMA device"} {
		at := slices.Index(ring.Order, i[0])
		if ring.Order[(at+1)%4] != i[1] || ring.Why[at] != want {
			t.Errorf("%s: from %d to %d %s, want %s", ring.Line(hosts), i[0], i[1], ring.Why[at], want)
		}
	}
	if at := hosts[0].home(); at != 1 {
		t.Errorf("the engine runs on node %d, the device is on node 1", at)
	}
	measured := []Edge{{From: 0, To: 1, Bandwidth: 1e9, InJob: true}}
	if why := Order([]Host{hosts[0], hosts[2]}, measured).Why[0]; !strings.HasPrefix(why, "8 Gbit/s measured in the job") {
		t.Errorf("measured: %s", why)
	}
	if only := OnlyNICs(hosts, []string{"e0"}); only[0].home() != 0 {
		t.Error("the engine does not run beside the NIC that the user chose")
	}
}

// A prefix of one address does not show which hosts are there: edges of such hosts have no reason to be taken or not.
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
	// An address that is a NIC's second one takes nothing away from what its first one shows.
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

// Where all hosts are in the same networks and the engine is beside its NIC in the same one, no ring crosses less
// inside hosts than another, in whatever order they list their NICs.
func TestCrossingsConstant(t *testing.T) {
	hosts, _ := railed(6, 2)
	for i := range hosts {
		for k := range hosts[i].NICs {
			hosts[i].NICs[k].Node, hosts[i].NICs[k].Speed = (i+k)%2, []int{100, 40}[k]
		}
		if i%2 == 1 {
			slices.Reverse(hosts[i].NICs)
		}
	}
	if newNetworks(hosts) != nil {
		t.Error("crossings are counted")
	}
	hosts[3].NICs[0].Speed = 400
	if newNetworks(hosts) == nil {
		t.Error("no crossings are counted, though one host's engine is in the other network")
	}
}

// TestCrossingsBothWays: what an edge crosses is the least of what the networks in common ask for, in both directions
// alike and whichever NIC a host lists first.
func TestCrossingsBothWays(t *testing.T) {
	// All three are in two networks, and have a NIC in the first one on node 0, beside the engine.
	hosts := []Host{
		{Name: "a", NICs: []NIC{card("e0", "10.0.0.1/24", 0, 25), card("e1", "10.1.0.1/24", 1, 10)}},
		{Name: "b", NICs: []NIC{card("e0", "10.1.0.2/24", 1, 10), card("e1", "10.0.0.2/24", 0, 25)}},
		{Name: "c", NICs: []NIC{card("e0", "10.0.0.3/24", 0, 25), card("e1", "10.1.0.3/24", 1, 10), card("e2", "10.2.0.3/24", 1, 10)}},
	}
	w := newNetworks(hosts)
	for i := range hosts {
		for j := range hosts {
			if n := w.crossings(i, j); i != j && n != 0 {
				t.Errorf("%d crossings from %s to %s, which have a network in common on node 0", n, hosts[i].Name, hosts[j].Name)
			}
		}
	}
	if why := strings.Join(Order(hosts, nil).Why, ", "); strings.Contains(why, "not on NUMA node") {
		t.Errorf("why: %s", why)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		hosts := make([]Host, 5)
		for i := range hosts {
			for k := range 3 {
				if rng.IntN(3) > 0 {
					hosts[i].NICs = append(hosts[i].NICs, card(fmt.Sprint("e", k), fmt.Sprintf("10.%d.0.%d/24", k, i+1), rng.IntN(3)-1, 10+k))
				}
			}
		}
		w := newNetworks(hosts)
		shuffled := slices.Clone(hosts)
		for i := range shuffled {
			shuffled[i].NICs = slices.Clone(shuffled[i].NICs)
			rng.Shuffle(len(shuffled[i].NICs), func(a, b int) {
				n := shuffled[i].NICs
				n[a], n[b] = n[b], n[a]
			})
		}
		again := newNetworks(shuffled)
		for i := range hosts {
			for j := range i {
				if there, back, other := w.crossings(i, j), w.crossings(j, i), again.crossings(j, i); there != back || there != other {
					t.Fatalf("%d crossings there, %d back, %d with NICs in another order: %+v", there, back, other, hosts)
				}
			}
		}
	}
}

// TestFastest: the speed of a host, the node of its engine, and that from which ranks are spread are those of one NIC:
// the one that data goes over, or else the fastest.
func TestFastest(t *testing.T) {
	on := func(node, speed int, driver string, addrs ...string) NIC {
		return NIC{Name: fmt.Sprint("e", node), Up: true, Node: node, Speed: speed, Driver: driver, Addrs: addrs}
	}
	const mine, other, alone = "10.0.0.1/24", "10.1.0.1/24", "fe80::1/64"
	down := on(0, 100_000, "", mine)
	down.Up = false
	told := func(n NIC) NIC {
		n.Given = true
		return n
	}
	slowBond := on(0, 1000, "", mine)
	slowBond.Name, slowBond.Speed, slowBond.Lower = "bond0", -1, []string{"e0"}
	for _, c := range []struct {
		name  string
		data  string // the NIC of which it is known
		nics  []NIC
		node  int // of the NIC that it is, -1 for none
		speed int
	}{
		{"none", "", nil, -1, 0},
		{"the faster", "", []NIC{on(0, 10_000, "", mine), on(1, 25_000, "", other)}, 1, 25_000},
		{"one that is up", "", []NIC{down, on(1, 10_000, "", other)}, 1, 10_000},
		{"one that has an address", "", []NIC{on(0, 100_000, ""), on(1, 10_000, "", mine)}, 1, 10_000},
		{"one that has an address for others", "", []NIC{on(0, 100_000, "", alone), on(1, 10_000, "", mine)}, 1, 10_000},
		{"any where none has an address", "", []NIC{on(0, 10_000, ""), on(1, 25_000, "")}, 1, 25_000},
		{"one whose speed is more than nominal", "", []NIC{on(0, 10_000, "vmxnet3", mine), on(1, 10_000, "mlx5_core", other)}, 1, 10_000},
		{"one whose speed an administrator told", "", []NIC{on(0, 10_000, "vmxnet3", mine), told(on(1, 10_000, "vmxnet3", other))}, 1, 10_000},
		{"the first of two that are alike", "", []NIC{on(1, 10_000, "", mine), on(0, 10_000, "", other)}, 1, 10_000},
		{"one that tells its speed", "", []NIC{on(0, -1, "", mine), on(1, 10_000, "", other)}, 1, 10_000},
		{"the fastest, though nobody knows its node", "", []NIC{on(0, 10_000, "", mine), on(-1, 25_000, "", other)}, -1, 25_000},
		{"the one that data goes over", "e0", []NIC{on(0, 10_000, "", mine), on(1, 25_000, "", other)}, 0, 10_000},
		{"the one that data goes over, whose node nobody knows", "e-1", []NIC{on(-1, 10_000, "", mine), on(1, 25_000, "", other)}, -1, 10_000},
		{"the one that data goes over, whose speed nobody knows", "e0", []NIC{on(0, -1, "", mine), on(1, 25_000, "", other)}, 0, 0},
		{"what it is made of", "bond0", []NIC{slowBond, on(0, 1000, ""), on(1, 25_000, "", other)}, 0, 1000},
		{"another one while it is down", "e0", []NIC{down, on(1, 25_000, "", other)}, 1, 25_000},
	} {
		h := Host{Data: c.data, NICs: c.nics, Nodes: []Node{{ID: 0, CPUs: []int{0}}, {ID: 1, CPUs: []int{1}}}}
		if bytes, _ := nicSpeed(h); bytes != float64(c.speed)*1e6/8 {
			t.Errorf("%s: %s, should be %d Mbit/s", c.name, BitRate(bytes), c.speed)
		}
		if m := newMachine(h, nil); m.nic != c.node { // its domains are the nodes
			t.Errorf("%s: ranks are spread from node %d, should be %d", c.name, m.nic, c.node)
		}
		elsewhere := Host{NICs: []NIC{on(0, 1, "", "10.9.0.1/24")}} // another network, so that crossings are counted
		if w := newNetworks([]Host{h, elsewhere}); w == nil && c.node >= 0 || w != nil && w.home[0] != c.node {
			t.Errorf("%s: the engine is looked for in %+v, should be on node %d", c.name, w, c.node)
		}
	}
}

// TestIdle: a NIC that is faster than the one that data goes over is named if that is a fact, and others may reach it.
func TestIdle(t *testing.T) {
	nic := func(name, driver string, speed int, addrs ...string) NIC {
		return NIC{Name: name, Driver: driver, Up: true, Speed: speed, Addrs: addrs}
	}
	slow := nic("e0", "", 1000, "10.0.0.1/24")
	const note = "e1 with 25 Gbit/s is idle, data goes over e0 with 1 Gbit/s"
	for _, c := range []struct {
		data  string
		other NIC
		want  string
	}{
		{"e0", nic("e1", "", 25_000, "10.1.0.1/24"), note},
		{"", nic("e1", "", 25_000, "10.1.0.1/24"), ""},
		{"e1", nic("e1", "", 25_000, "10.1.0.1/24"), ""},
		{"e0", nic("e1", "", 1000, "10.1.0.1/24"), ""},
		{"e0", nic("e1", "", 25_000), ""},
		{"e0", nic("e1", "vmxnet3", 10_000, "10.1.0.1/24"), ""},
	} {
		h := Host{Data: c.data, NICs: []NIC{slow, c.other}}
		if nic, got := h.Idle(); got != c.want || (nic != "") != (c.want != "") {
			t.Errorf("data over %q beside %+v: %s %q, should be %q", c.data, c.other, nic, got, c.want)
		}
	}
}
