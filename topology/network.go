package topology

import (
	"fmt"
	"slices"
)

// networks determines what the data of an edge crosses: networks, and NUMA nodes inside hosts. That depends on both
// ends of the edge if hosts are in different sets of networks, or have the NIC near the engine in different networks.
// If all hosts are alike, every edge uses the same NICs and all rings cross the same.
type networks struct {
	names []string
	of    [][]attachment // by host, in the order of names
	vague []bool         // by host: it has a NIC whose network is unknown
	home  []int          // by host: Host.home
	rdma  []bool         // by host: its data goes over RDMA where it can
}

// attachment is a network of a host, and whether all the host's NICs there are on other NUMA nodes than the engine.
type attachment struct {
	network   int
	elsewhere bool
}

// newNetworks returns nil if all rings cross the same. The order of a host's NICs does not matter, except to choose
// among equally fast ones.
func newNetworks(hosts []Host) *networks {
	w := &networks{vague: make([]bool, len(hosts)), home: make([]int, len(hosts)), rdma: make([]bool, len(hosts))}
	numbers := map[string]int{}
	differ := false
	for i, h := range hosts {
		type card struct{ network, node int }
		var cards []card
		w.home[i] = h.home()
		_, _, w.rdma[i] = h.carrier()
		for _, nic := range h.NICs {
			network := nic.Network()
			if !nic.Up || !network.IsValid() && !nic.single() {
				continue
			}
			if !network.IsValid() {
				w.vague[i] = true
				continue
			}
			name := network.String()
			number, known := numbers[name]
			if !known {
				number = len(w.names)
				numbers[name], w.names = number, append(w.names, name)
			}
			cards = append(cards, card{number, nic.Node})
		}
		var in []attachment
		for _, c := range cards {
			elsewhere := c.node >= 0 && w.home[i] >= 0 && c.node != w.home[i]
			at := slices.IndexFunc(in, func(a attachment) bool { return a.network == c.network })
			if at < 0 {
				in = append(in, attachment{c.network, elsewhere})
			} else {
				in[at].elsewhere = in[at].elsewhere && elsewhere
			}
		}
		slices.SortFunc(in, func(a, b attachment) int { return a.network - b.network })
		w.of = append(w.of, in)
		differ = differ || !slices.Equal(in, w.of[0])
	}
	if !differ {
		return nil
	}
	return w
}

// between returns what data between two hosts crosses. It is routed if all their networks are known and none is common.
// inside is, for each of the two, whether it goes over a NIC on another NUMA node than the engine's. Of several common
// networks, the one counts in which it does so at the fewest hosts. Data over RDMA never does. Both directions have the
// same result.
func (w *networks) between(from, to int) (routed bool, inside [2]bool) {
	if w == nil || len(w.of[from]) == 0 || len(w.of[to]) == 0 {
		return false, inside
	}
	least := 3 // more than possible
	for _, a := range w.of[from] {
		for _, b := range w.of[to] {
			if a.network != b.network {
				continue
			}
			n := 0
			for _, crosses := range []bool{a.elsewhere, b.elsewhere} {
				if crosses {
					n++
				}
			}
			if n < least {
				least, inside = n, [2]bool{a.elsewhere, b.elsewhere}
			}
		}
	}
	if w.rdma[from] && w.rdma[to] { // by the devices beside the engines
		inside = [2]bool{}
	}
	return least == 3 && !w.vague[from] && !w.vague[to], inside
}

// crossings counts the result of between.
func (w *networks) crossings(from, to int) (n int64) {
	routed, inside := w.between(from, to)
	for _, crosses := range []bool{routed, inside[0], inside[1]} {
		if crosses {
			n++
		}
	}
	return n
}

// why describes the result of between.
func (w *networks) why(hosts []Host, from, to int) (reasons []string) {
	routed, inside := w.between(from, to)
	if routed {
		reasons = append(reasons, "no network in common")
	}
	for i, host := range [2]int{from, to} {
		if inside[i] {
			reasons = append(reasons, fmt.Sprintf("by a NIC that is not on NUMA node %d of %s", w.home[host], hostName(hosts, host)))
		}
	}
	return reasons
}
