package doctor

import (
	"fmt"
	"net/netip"
)

// Way is from one host to another, and how large the packets are that both send there.
type Way struct {
	From, To Facts
	Addr     netip.Addr // of To
	Bytes    int
}

// Ways are those that are worth a probe: from each host to the next.
func Ways(all []Answer) []Way {
	var out []Way
	for i, a := range all {
		next := all[(i+1)%len(all)].Facts
		w := Way{From: a.Facts, To: next, Bytes: min(mtu(a.Facts.Host), mtu(next.Host))}
		for _, text := range mainNIC(next.Host).Addrs {
			if p, err := netip.ParsePrefix(text); err == nil && p.Addr().IsGlobalUnicast() && (!w.Addr.IsValid() || p.Addr().Is4()) {
				w.Addr = p.Addr()
			}
		}
		if len(all) > 1 && w.Addr.IsValid() && w.Bytes > 0 {
			out = append(out, w)
		}
	}
	return out
}

// JudgeWay says what it means that packets of so many bytes arrive; 0 is that the other host says nothing.
func JudgeWay(w Way, arrive int) Finding {
	j := judge{host: w.From.Host.Name}
	to, nic := w.To.Host.Name, mainNIC(w.From.Host).Name
	switch {
	case arrive == 0:
		j.add("path to "+to, Pass, "not known: it answers no probe, as behind a firewall", "")
	default:
		j.check("path to "+to, arrive >= w.Bytes, fmt.Sprintf("packets of %d bytes arrive", arrive), Fail,
			fmt.Sprintf("packets of %d bytes are lost on the way, those of %d arrive: connections come about and then stand still", w.Bytes, arrive),
			fmt.Sprintf("ip link set dev %s mtu %d (on %s and %s), or have the switches between carry %d", nic, arrive, w.From.Host.Name, to, w.Bytes))
	}
	return j.findings[0]
}
