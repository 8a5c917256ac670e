package topology

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// ChosenNIC returns what accepts the addresses that the user's list means, by names of interfaces, drivers, or networks.
// An empty list means those that can be reached from outside.
func ChosenNIC(list []string, nics []NIC) func(nic string, a netip.Addr) bool {
	if len(list) == 0 {
		return func(_ string, a netip.Addr) bool { return a.IsGlobalUnicast() }
	}
	return func(name string, a netip.Addr) bool {
		for _, want := range list {
			network, err := netip.ParsePrefix(want)
			switch {
			case err == nil && network.Contains(a):
				return true
			case a.IsLinkLocalUnicast(): // needs a zone, which peers do not have
			case name == want:
				return true
			case slices.ContainsFunc(nics, func(n NIC) bool { return n.Name == name && n.Driver == want }):
				return true
			}
		}
		return false
	}
}

// fastest returns the NIC that data goes over as far as NICs say, of those that tell what is asked: one that is up and can be
// reached rather than one that cannot, then the fastest, then one whose speed is more than nominal, then the first.
func fastest(nics []NIC, tells func(NIC) bool) (best NIC, found bool) {
	for _, n := range nics {
		if n.Up && tells(n) && (!found || n.better(best)) {
			best, found = n, true
		}
	}
	return best, found
}

func (n NIC) better(other NIC) bool {
	switch reachable, also := n.reachable(), other.reachable(); {
	case reachable != also:
		return reachable
	case n.Speed != other.Speed:
		return n.Speed > other.Speed
	}
	return other.Nominal() && !n.Nominal()
}

// reachable reports whether a NIC has an address at which others find it.
func (n NIC) reachable() bool { return len(n.addresses(ChosenNIC(nil, nil))) > 0 }

// NICNames names the interfaces that the user's list means, in the order of the list.
func NICNames(list []string, nics []NIC) []string {
	var out []string
	for _, want := range list {
		use := ChosenNIC([]string{want}, nics)
		for _, n := range nics {
			if len(n.addresses(use)) > 0 && !slices.Contains(out, n.Name) {
				out = append(out, n.Name)
			}
		}
	}
	return out
}

// OnlyNICs returns the hosts with the interfaces that the user's list means, and no others: what data does not go over
// says nothing about a ring. With an empty list they are as they were.
func OnlyNICs(hosts []Host, list []string) []Host {
	if len(list) == 0 {
		return hosts
	}
	out := slices.Clone(hosts)
	for i, h := range out {
		names := NICNames(list, h.NICs)
		out[i].NICs = slices.DeleteFunc(slices.Clone(h.NICs), func(n NIC) bool { return !slices.Contains(names, n.Name) })
	}
	return out
}

// WithoutNICs says which hosts have none of the interfaces that the user's list means: a job would not start there.
func WithoutNICs(hosts []Host, list []string) []string {
	var out []string
	for _, h := range hosts {
		if len(list) > 0 && len(Addresses(h, list, netip.Addr{})) == 0 {
			out = append(out, h.Name+" has none of "+strings.Join(list, ",")+" that is up")
		}
	}
	return out
}

// Addresses returns where a host is reached over the interfaces of the user's list, best first.
func Addresses(h Host, list []string, hint netip.Addr) []netip.Addr {
	var out []netip.Addr
	use := ChosenNIC(list, h.NICs)
	for _, n := range h.NICs {
		if n.Up {
			out = append(out, n.addresses(use)...)
		}
	}
	Prefer(out, hint)
	return out
}

// Prefer sorts addresses: the hint first, because it is the only one that was ever tried, and then those of IPv4.
func Prefer(addrs []netip.Addr, hint netip.Addr) {
	rank := func(a netip.Addr) int {
		switch {
		case a == hint:
			return 0
		case a.Is4():
			return 1
		}
		return 2
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(rank(a), rank(b)) })
}

// addresses returns those that are accepted.
func (n NIC) addresses(use func(nic string, a netip.Addr) bool) (out []netip.Addr) {
	for _, s := range n.Addrs {
		if p, err := netip.ParsePrefix(s); err == nil && use(n.Name, p.Addr().Unmap()) {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}
