package topology

import (
	"fmt"
	"slices"
)

// networks are what edges cross inside hosts and between their networks: it matters where hosts are in several networks, not
// all the same ones, or have the NICs that the engine is beside in different ones, so that what an edge crosses depends on who
// is at its ends. Where all hosts are alike every edge takes the same NICs, and whatever it crosses then is in every ring alike.
type networks struct {
	names []string
	of    [][]attachment // by host, in the order of names
	vague []bool         // by host: it has a NIC of which nobody knows whom it reaches
	home  []int          // by host: the NUMA node of the NIC that data goes over, where the engine runs; -1 unknown
}

// attachment is a network that a host is in, and whether all its NICs there are on other NUMA nodes than the engine's.
type attachment struct {
	network   int
	elsewhere bool
}

// newNetworks returns nil if no ring crosses less than another. In which order a host lists its NICs does not matter, but
// for which of equally fast ones is its first.
func newNetworks(hosts []Host) *networks {
	w := &networks{vague: make([]bool, len(hosts)), home: make([]int, len(hosts))}
	numbers := map[string]int{}
	differ := false
	for i, h := range hosts {
		type card struct{ network, node int }
		var cards []card
		w.home[i] = -1
		if nic, found := fastest(h.carriers(), anything); found {
			w.home[i] = nic.Node
		}
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

// between returns what data from one host to another crosses: a router, if they have networks but none in common, all
// of which are known, and the hosts in which it goes through the NUMA node of another NIC than the engine's, in the network
// that they have in common with the fewest of these. It is the same in both directions.
func (w *networks) between(from, to int) (routed bool, inside [2]bool) {
	if w == nil || len(w.of[from]) == 0 || len(w.of[to]) == 0 {
		return false, inside
	}
	least := 3 // more than there can be
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
	return least == 3 && !w.vague[from] && !w.vague[to], inside
}

// crossings counts what between returns.
func (w *networks) crossings(from, to int) (n int64) {
	routed, inside := w.between(from, to)
	for _, crosses := range []bool{routed, inside[0], inside[1]} {
		if crosses {
			n++
		}
	}
	return n
}

// why puts what between returns into words.
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
