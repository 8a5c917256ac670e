package network

import (
	"errors"
	"net"
	"net/netip"

	"gorun/topology"
	"gorun/topology/probe"
)

// addresses returns where peers can reach this host, best first, over the interfaces that use accepts. The hint is an
// address known to lead here (the one at which ssh arrived) or, failing that, the one from which the route to a peer
// leaves. It comes first because no other address was ever tried.
//
// Of several addresses that an interface has in one network, it returns the hint or else the first: all of them are the
// same way, and a peer that has no answer yet tries all that it gets.
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

// anywhere is an address that no machine has (RFC 5737): packets to it would take the default route.
const anywhere = "192.0.2.1"

// errNoAddress means the host has no usable address yet.
var errNoAddress = errors.New("find address: no network interface is up")

// FirstAddresses returns where the others find this host when it begins. In a job that hosts may join later, a machine
// without a network begins with its loopback address. Only then: an address that is lost later may come back, and until
// then none is better than one that leads peers to themselves.
func (n *Network) FirstAddresses(interfaces []probe.Interface) ([]netip.Addr, error) {
	addrs, err := n.addresses(interfaces)
	if n.job.Open && errors.Is(err, errNoAddress) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	return addrs, err
}

// addresses returns where the others find this host. A host that is alone listens only to itself; the NICs that
// the user chose must exist all the same.
func (n *Network) addresses(interfaces []probe.Interface) ([]netip.Addr, error) {
	chosen, nics, hint := n.job.NICs, n.cfg.Daemon.Host().NICs, netip.Addr{}
	if !n.job.Alone {
		hint = n.hint()
	}
	addrs := addresses(interfaces, hint, topology.ChosenNIC(chosen, nics))
	switch {
	case len(chosen) > 0 && len(addrs) == 0:
		return nil, &UnknownNICsError{chosen, nics}
	case n.job.Alone:
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	case len(chosen) == 0 && hint.IsLoopback(): // every host is this machine
		addrs = append([]netip.Addr{hint}, addrs...)
	case len(addrs) == 0:
		return nil, errNoAddress
	}
	return addrs, nil
}

// hint returns the address of this host that comes first, invalid if none does.
func (n *Network) hint() netip.Addr {
	hint, err := netip.ParseAddr(n.job.LocalIP)
	if err != nil {
		hint = probe.SourceToward(n.job.Toward)
		if n.lost && hint.IsLoopback() {
			hint = netip.Addr{} // there is no peer to look up a route to, or its name means this host here: the others are elsewhere
		}
	}
	if n.job.Open && hint.IsLoopback() { // hosts that come later may be anywhere
		hint = probe.SourceToward(anywhere)
	}
	return hint
}

// bindAddress is where this host listens. If hosts may join the job later, it may have other addresses by then, so it
// listens on all of them.
func bindAddress(addrs []netip.Addr, open bool) string {
	switch {
	case addrs[0].IsLoopback() && !open:
		return addrs[0].String()
	case addrs[0].Is6():
		return "::"
	}
	return "0.0.0.0"
}
