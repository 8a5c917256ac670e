package worker

import (
	"net"
	"net/netip"

	"gorun/topology"
	"gorun/topology/probe"
)

// addresses returns where peers can reach this host, best first, over those of its interfaces that use accepts. A hint is an address known to lead
// here (the one at which ssh arrived) or, failing that, the one from which the route to a peer leaves;
// it comes first because it is the only one that was ever tried. Loopback is the answer of a host that
// is alone.
//
// Of the addresses that one interface has in one network a peer needs one, the hint or else the first: all of them are
// the same way, and a peer that has no answer yet tries what it is given.
func addresses(interfaces []probe.Interface, hint netip.Addr, use func(nic string, a netip.Addr) bool) []netip.Addr {
	var out []netip.Addr
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		var prefixes []netip.Prefix
		for _, p := range i.Prefixes {
			if use(i.Name, p.Addr()) {
				prefixes = append(prefixes, p)
			}
		}
		out = append(out, onePerNetwork(prefixes, hint)...)
	}
	topology.Prefer(out, hint)
	return out
}

// onePerNetwork returns an address of each network in which an interface has some: the hint, or else the first.
func onePerNetwork(prefixes []netip.Prefix, hint netip.Addr) []netip.Addr {
	var out []netip.Addr
	at := map[netip.Prefix]int{} // in out
	for _, p := range prefixes {
		a := p.Addr().Unmap()
		i, seen := at[p.Masked()]
		switch {
		case !seen:
			at[p.Masked()] = len(out)
			out = append(out, a)
		case a == hint:
			out[i] = a
		}
	}
	return out
}

// anywhere is an address that no machine has (RFC 5737): the way to it is the way to all that this host knows no other for.
const anywhere = "192.0.2.1"
