package topology

import (
	"net/netip"
	"slices"
)

// A rail is a network in which every host has a NIC for data, named by its prefix. With several rails all data uses one
// ring, and any idle stream takes the next segment: so each host's NICs carry as much as they can together, and a slow
// one does no harm.

// maxRails bounds the number of networks.
const maxRails = 8

// Network returns the network of a NIC, by its first IPv4 address or else by its first address. It is invalid if
// the NIC has none. A prefix of a single address, as assigned by clouds and DHCPv6, does not count: it does not
// describe a network.
func (n NIC) Network() (network netip.Prefix) {
	for _, s := range n.Addrs {
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil || p.IsSingleIP() || p.Addr().IsLinkLocalUnicast():
		case p.Addr().Is4():
			return p.Masked()
		case !network.IsValid():
			network = p.Masked()
		}
	}
	return network
}

// single reports whether a NIC has an address whose prefix is that address alone.
func (n NIC) single() bool {
	return slices.ContainsFunc(n.Addrs, func(s string) bool {
		p, err := netip.ParsePrefix(s)
		return err == nil && p.IsSingleIP() && !p.Addr().IsLinkLocalUnicast()
	})
}

// Rails returns the networks of the hosts' NICs that are up, in a fixed order, if all hosts have the same ones, and nil
// otherwise. Hosts should have only NICs for data (OnlyNICs).
func Rails(hosts []Host) []string {
	var common []string
	for i, h := range hosts {
		var rails []string
		for _, nic := range h.NICs {
			if network := nic.Network(); nic.Up && network.IsValid() {
				rails = append(rails, network.String())
			}
		}
		slices.Sort(rails)
		rails = slices.Compact(rails)
		if i > 0 && !slices.Equal(rails, common) {
			return nil
		}
		common = rails
	}
	return common[:min(len(common), maxRails)]
}

// ChosenRails returns the rails of the NICs that the user chose by a list, nil without a list.
func ChosenRails(hosts []Host, list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return Rails(OnlyNICs(hosts, list))
}

// onRail returns the problem of a ring over one rail.
func onRail(hosts []Host, edges []Edge, rail string) *problem {
	there := slices.Clone(hosts)
	for i, h := range there {
		there[i].NICs = slices.DeleteFunc(slices.Clone(h.NICs), func(n NIC) bool {
			network := n.Network()
			return !network.IsValid() || network.String() != rail
		})
	}
	var measured []Edge
	for _, e := range edges {
		if e.Rail == rail {
			e.Rail = ""
			measured = append(measured, e)
		}
	}
	return newProblem(there, measured)
}

// WithSums returns the edges, preceded by the sums over all rails between two hosts, where at least one rail was
// measured and the others are known. A pair that could not be measured on some rail stays blocked.
func WithSums(hosts []Host, edges []Edge, rails []string) []Edge {
	if len(rails) == 0 || !slices.ContainsFunc(edges, func(e Edge) bool { return e.Rail != "" }) {
		return edges
	}
	var on []*problem
	for _, rail := range rails {
		on = append(on, onRail(hosts, edges, rail))
	}
	var sums []Edge
	for from := range hosts {
		for to := range hosts {
			at := from*len(hosts) + to
			if from != to && slices.ContainsFunc(on, func(p *problem) bool { return p.known[at] == blocked }) {
				sums = append(sums, Edge{From: from, To: to, Blocked: true})
				continue
			}
			if from == to || !slices.ContainsFunc(on, func(p *problem) bool { return p.known[at].fact() }) ||
				slices.ContainsFunc(on, func(p *problem) bool { return p.known[at] == unknown }) {
				continue
			}
			e := Edge{From: from, To: to}
			for _, p := range on {
				e.Bandwidth += p.edges[at].speed
				if rtt := p.rtt[at]; rtt > 0 && (e.RTT == 0 || rtt < e.RTT) {
					e.RTT = rtt
				}
			}
			sums = append(sums, e)
		}
	}
	return append(sums, edges...)
}
