package worker

import (
	"cmp"
	"net"
	"net/netip"
	"slices"

	"gorun/topology"
)

// addresses returns where peers can reach this host, best first, over the interfaces that use accepts. A hint is an address known to lead
// here (the one at which ssh arrived) or, failing that, the one from which the route to a peer leaves;
// it comes first because it is the only one that was ever tried. Loopback is the answer of a host that
// is alone.
func addresses(hint netip.Addr, use func(nic string, a netip.Addr) bool) []netip.Addr {
	var out []netip.Addr
	ifaces, _ := net.Interfaces()
	for _, i := range ifaces {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && use(i.Name, p.Addr().Unmap()) {
				out = append(out, p.Addr().Unmap())
			}
		}
	}
	slices.SortStableFunc(out, func(a, b netip.Addr) int { return cmp.Compare(addressRank(a, hint), addressRank(b, hint)) })
	return out
}

// anyNIC accepts every address that can be reached from outside.
func anyNIC(_ string, a netip.Addr) bool { return a.IsGlobalUnicast() }

// chosenNIC accepts what the user's list names: interfaces, drivers, or networks.
func chosenNIC(list []string, nics []topology.NIC) func(string, netip.Addr) bool {
	return func(name string, a netip.Addr) bool {
		for _, want := range list {
			network, err := netip.ParsePrefix(want)
			switch {
			case err == nil && network.Contains(a):
				return true
			case a.IsLinkLocalUnicast(): // needs a zone, which peers do not have
			case name == want:
				return true
			case slices.ContainsFunc(nics, func(n topology.NIC) bool { return n.Name == name && n.Driver == want }):
				return true
			}
		}
		return false
	}
}

// nicNames names the interfaces of this host that the user's list means, in the order of the list.
func nicNames(list []string, nics []topology.NIC) []string {
	var out []string
	for _, want := range list {
		use := chosenNIC([]string{want}, nics)
		for _, n := range nics {
			found := slices.ContainsFunc(n.Addrs, func(s string) bool {
				p, err := netip.ParsePrefix(s)
				return err == nil && use(n.Name, p.Addr().Unmap())
			})
			if found && !slices.Contains(out, n.Name) {
				out = append(out, n.Name)
			}
		}
	}
	return out
}

func addressRank(a, hint netip.Addr) int {
	switch {
	case a == hint:
		return 0
	case a.Is4():
		return 1
	}
	return 2
}

// sourceToward returns the local address from which packets to host would leave. Nothing is sent.
func sourceToward(host string) netip.Addr {
	c, err := net.Dial("udp", net.JoinHostPort(host, "9"))
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	a, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}
