package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// ChosenNIC returns a filter for the addresses that the user's list selects, by names of interfaces, drivers, or
// networks. An empty list selects all that can be reached from outside.
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
			case a.IsLinkLocalUnicast(): // these need a zone, which peers do not have
			case name == want:
				return true
			case slices.ContainsFunc(nics, func(n NIC) bool { return n.Name == name && n.Driver == want }):
				return true
			}
		}
		return false
	}
}

// NICAt returns the name of the NIC with an address, "" if there is none.
func (h Host) NICAt(a netip.Addr) string {
	for _, nic := range h.NICs {
		if len(nic.addresses(func(_ string, own netip.Addr) bool { return own == a.Unmap() })) > 0 {
			return nic.Name
		}
	}
	return ""
}

// carriers returns the NICs that data may use: the one that is known to carry it, with the interfaces it consists of,
// or else all.
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

// carrier returns the RDMA device that carries data to other hosts that have one, and how fast it is, in Mbit/s, -1 if
// that is unknown; false if there is none.
func (h Host) carrier() (device RDMA, speed int, found bool) {
	at := slices.IndexFunc(h.RDMA, func(d RDMA) bool { return d.Name == h.DataRDMA })
	if at < 0 {
		return RDMA{}, -1, false
	}
	speed = -1
	for _, p := range h.RDMA[at].Ports {
		if p.Active {
			speed = max(speed, p.Speed)
		}
	}
	return h.RDMA[at], speed, true
}

// home returns the NUMA node of what carries data, where the engine runs; -1 if it is unknown.
func (h Host) home() int {
	if device, _, found := h.carrier(); found && device.Node >= 0 {
		return device.Node
	}
	if nic, found := fastest(h.carriers(), anything); found {
		return nic.Node
	}
	return -1
}

// Idle returns a NIC that other hosts may reach and that is faster than the one that carries data, with a note for the
// user; "" if there is none.
func (h Host) Idle() (nic, note string) {
	at := slices.IndexFunc(h.NICs, func(n NIC) bool { return n.Name == h.Data && n.Up && n.Speed > 0 })
	faster, found := fastest(h.NICs, func(n NIC) bool { return n.reachable() && !n.Nominal() })
	if at < 0 || !found || faster.Speed <= h.NICs[at].Speed {
		return "", ""
	}
	bits := func(n NIC) string { return BitRate(float64(n.Speed) * 1e6 / 8) }
	return faster.Name, fmt.Sprintf("%s with %s is idle, data goes over %s with %s", faster.Name, bits(faster), h.Data, bits(h.NICs[at]))
}

// anything accepts every NIC.
func anything(NIC) bool { return true }

// fastest returns the NIC that most likely carries data, among those that are up and that accept admits. It prefers one
// that other hosts can reach, then speed, then a speed that is not nominal, then the first.
func fastest(nics []NIC, accept func(NIC) bool) (best NIC, found bool) {
	for _, n := range nics {
		if n.Up && accept(n) && (!found || n.better(best)) {
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

// reachable reports whether a NIC has an address that other hosts can reach.
func (n NIC) reachable() bool { return len(n.addresses(ChosenNIC(nil, nil))) > 0 }

// NICNames returns the interfaces that the user's list selects, in the order of the list.
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

// OnlyNICs returns the hosts with only the interfaces that the user's list selects, since the others do not affect the
// ring. An empty list changes nothing.
func OnlyNICs(hosts []Host, list []string) []Host {
	if len(list) == 0 {
		return hosts
	}
	out := slices.Clone(hosts)
	for i, h := range out {
		names := NICNames(list, h.NICs)
		out[i].Data, out[i].DataRDMA = "", "" // data uses all of them
		out[i].NICs = slices.DeleteFunc(slices.Clone(h.NICs), func(n NIC) bool { return !slices.Contains(names, n.Name) })
	}
	return out
}

// WithoutNICs returns the hosts that have none of the selected interfaces: a job would not start there.
func WithoutNICs(hosts []Host, list []string) []string {
	var out []string
	for _, h := range hosts {
		if len(list) > 0 && len(Addresses(h, list, netip.Addr{})) == 0 {
			out = append(out, h.Name)
		}
	}
	return out
}

// Addresses returns the addresses of a host on the selected interfaces, best first.
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

// Prefer sorts addresses: the hint first, because only that one was ever tried, then IPv4.
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

// addresses returns the addresses of a NIC that use accepts.
func (n NIC) addresses(use func(nic string, a netip.Addr) bool) (out []netip.Addr) {
	for _, s := range n.Addrs {
		if p, err := netip.ParsePrefix(s); err == nil && use(n.Name, p.Addr().Unmap()) {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}
