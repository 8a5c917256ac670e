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

// Interfaces returns those of the network namespace that this process is in, nil if they cannot be had. The kernel tells the
// addresses of all for each of them, which takes a while where there are many: whoever needs them twice asks once.
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
