package topology

import (
	"fmt"
	"slices"
)

// networks are what edges cross inside hosts and between their networks: it matters where hosts have NICs in several
// networks, not all the same ones, so that which NIC an edge takes depends on who is at its ends. Where all hosts are in the same
// networks every edge takes the same NICs, and whatever it crosses then is in every ring alike.
type networks struct {
	names []string
	of    [][]attachment // by host, in the order of its NICs
	vague []bool         // by host: it has a NIC of which nobody knows whom it reaches
	home  []int          // by host: the NUMA node of its fastest NIC, where the engine runs; -1 unknown
}

// attachment is a network that a host is in, and the NUMA node of its NIC there.
type attachment struct{ network, node int }

// newNetworks returns nil if no ring crosses less than another.
func newNetworks(hosts []Host) *networks {
	w := &networks{vague: make([]bool, len(hosts)), home: make([]int, len(hosts))}
	numbers := map[string]int{}
	differ := false
	for i, h := range hosts {
		var in []attachment
		w.home[i] = -1
		fastest := -1
		for _, nic := range h.NICs {
			network := nic.Network()
			if !nic.Up || !network.IsValid() && !nic.single() {
				continue
			}
			if nic.Speed > fastest {
				fastest, w.home[i] = nic.Speed, nic.Node
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
			in = append(in, attachment{number, nic.Node})
		}
		w.of = append(w.of, in)
		differ = differ || !slices.EqualFunc(in, w.of[0], func(a, b attachment) bool { return a.network == b.network })
	}
	if !differ {
		return nil
	}
	return w
}

// between returns what data from one host to another crosses: a router, if they have networks but none in common, all
// of which are known, and the hosts in which it goes through the NUMA node of another NIC than the engine's.
func (w *networks) between(from, to int) (routed bool, inside [2]bool) {
	if w == nil || len(w.of[from]) == 0 || len(w.of[to]) == 0 {
		return false, inside
	}
	for _, a := range w.of[from] {
		for _, b := range w.of[to] {
			if a.network == b.network {
				elsewhere := func(host, node int) bool { return node >= 0 && w.home[host] >= 0 && node != w.home[host] }
				return false, [2]bool{elsewhere(from, a.node), elsewhere(to, b.node)}
			}
		}
	}
	return !w.vague[from] && !w.vague[to], inside
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
