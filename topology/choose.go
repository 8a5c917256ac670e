package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
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

// NICAt names the NIC that has an address, "" if none has.
func (h Host) NICAt(a netip.Addr) string {
	for _, nic := range h.NICs {
		if len(nic.addresses(func(_ string, own netip.Addr) bool { return own == a.Unmap() })) > 0 {
			return nic.Name
		}
	}
	return ""
}

// carriers are the NICs that data may go over: the one of which that is known, and what it is made of, or else all.
func (h Host) carriers() []NIC {
	at := slices.IndexFunc(h.NICs, func(n NIC) bool { return n.Name == h.Data && n.Up })
	if at < 0 {
		return h.NICs
	}
	carriers := []NIC{h.NICs[at]}
	for _, n := range h.NICs {
		if slices.Contains(h.NICs[at].Lower, n.Name) {
			carriers = append(carriers, n)
		}
	}
	return carriers
}

// Idle names a NIC that is faster than the one that data goes over and that others may reach as well, and says so; "" if
// there is none.
func (h Host) Idle() (nic, note string) {
	at := slices.IndexFunc(h.NICs, func(n NIC) bool { return n.Name == h.Data && n.Up && n.Speed > 0 })
	faster, found := fastest(h.NICs, func(n NIC) bool { return n.reachable() && !n.Nominal() })
	if at < 0 || !found || faster.Speed <= h.NICs[at].Speed {
		return "", ""
	}
	bits := func(n NIC) string { return BitRate(float64(n.Speed) * 1e6 / 8) }
	return faster.Name, fmt.Sprintf("%s with %s is idle, data goes over %s with %s", faster.Name, bits(faster), h.Data, bits(h.NICs[at]))
}

// anything is what every NIC tells.
func anything(NIC) bool { return true }

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
		out[i].Data = "" // it goes over all of them
		out[i].NICs = slices.DeleteFunc(slices.Clone(h.NICs), func(n NIC) bool { return !slices.Contains(names, n.Name) })
	}
	return out
}

// WithoutNICs names the hosts that have none of the interfaces that the user's list means: a job would not start there.
func WithoutNICs(hosts []Host, list []string) []string {
	var out []string
	for _, h := range hosts {
		if len(list) > 0 && len(Addresses(h, list, netip.Addr{})) == 0 {
			out = append(out, h.Name)
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
