package probe

import (
	"net"
	"net/netip"
)

// Interface is a network interface with its addresses.
type Interface struct {
	net.Interface
	Prefixes []netip.Prefix
}

// Interfaces returns the interfaces of this process's network namespace, nil if they cannot be read. The kernel lists
// all addresses again for each interface, which takes long where there are many, so callers keep the result.
func Interfaces() []Interface {
	list, _ := net.Interfaces()
	var all []Interface
	for _, i := range list {
		addrs, _ := i.Addrs()
		prefixes := make([]netip.Prefix, 0, len(addrs))
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				ones, _ := n.Mask.Size()
				prefixes = append(prefixes, netip.PrefixFrom(ip.Unmap(), ones))
			}
		}
		all = append(all, Interface{i, prefixes})
	}
	return all
}
