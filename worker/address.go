package worker

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
)

// addresses returns where peers can reach this host, best first. A hint is an address known to lead
// here (the one at which ssh arrived) or, failing that, the one from which the route to a peer leaves;
// it comes first because it is the only one that was ever tried. Loopback is the answer of a host that
// is alone.
func addresses(hint netip.Addr) []netip.Addr {
	var out []netip.Addr
	ifaces, _ := net.Interfaces()
	for _, i := range ifaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && p.Addr().IsGlobalUnicast() {
				out = append(out, p.Addr().Unmap())
			}
		}
	}
	slices.SortStableFunc(out, func(a, b netip.Addr) int { return cmp.Compare(addressRank(a, hint), addressRank(b, hint)) })
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
