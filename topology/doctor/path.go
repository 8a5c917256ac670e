package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"gorun/topology"
)

// Path leads from one host to another. Bytes is the packet size that both ends use.
type Path struct {
	From, To string
	NIC      string     // of From
	Addr     netip.Addr // of To
	Bytes    int
}

// Paths returns the paths worth a probe: from each host to the next, over the NICs that the user's list selects.
func Paths(all []Answer, nics []string) []Path {
	if len(all) < 2 {
		return nil
	}
	var out []Path
	for i, a := range all {
		from, to := a.Facts.Host, all[(i+1)%len(all)].Facts.Host
		mine, _ := mainNIC(from, nics)
		theirs, addr := mainNIC(to, nics)
		if w := (Path{from.Name, to.Name, mine.Name, addr, min(mine.MTU, theirs.MTU)}); addr.IsValid() && w.Bytes > 0 {
			out = append(out, w)
		}
	}
	return out
}

// minPacket is the packet size that every network must carry, in bytes.
const minPacket = 576

// JudgePath interprets the largest packet that arrives; 0 means that the other host does not answer, and err why it is
// unknown.
func JudgePath(w Path, arrive int, err error) Finding {
	j := judge{host: w.From}
	check := "path to " + w.To
	switch {
	case err != nil:
		j.add(check, Warn, "not known: "+err.Error(), fmt.Sprintf("ssh %s ping -c 1 %s", w.From, w.Addr))
	case arrive == 0:
		j.add(check, Pass, "not known: it answers no probe, as behind a firewall", "")
	case arrive < minPacket:
		j.add(check, Fail, fmt.Sprintf("packets of %d bytes are lost on the way, only those of %d arrive: no data passes", minPacket, arrive),
			fmt.Sprintf("have the network between %s and %s carry packets of %d bytes", w.From, w.To, w.Bytes))
	default:
		j.check(check, arrive >= w.Bytes, fmt.Sprintf("packets of %d bytes arrive", arrive), Fail,
			fmt.Sprintf("packets of %d bytes are lost on the way, those of %d arrive: connections open and then hang", w.Bytes, arrive),
			fmt.Sprintf("ip link set dev %s mtu %d (on %s and %s), or have the switches between carry %d", w.NIC, arrive, w.From, w.To, w.Bytes))
	}
	return j.findings[0]
}

// mainNIC returns the selected NIC at which a host is reached first, and its address there.
func mainNIC(h topology.Host, nics []string) (topology.NIC, netip.Addr) {
	addrs := topology.Addresses(h, nics, netip.Addr{})
	if len(addrs) == 0 {
		return topology.NIC{}, netip.Addr{}
	}
	at := slices.IndexFunc(h.NICs, func(n topology.NIC) bool {
		return slices.Contains(topology.Addresses(topology.Host{NICs: []topology.NIC{n}}, nics, netip.Addr{}), addrs[0])
	})
	return h.NICs[at], addrs[0]
}
