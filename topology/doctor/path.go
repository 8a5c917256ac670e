package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"gorun/topology"
)

// Path leads from one host to another. Bytes is the packet size that both ends use.
type Path struct {
	topology.Pair
	From, To string
	NIC      string     // of From
	Addr     netip.Addr // of From
	ToNIC    string
	ToAddr   netip.Addr
	Ports    string // that a job may take of To
	Bytes    int
}

// Paths returns the paths worth a probe: from each host to the next and back, over the NICs that the user's list
// selects.
func Paths(all []Answer, nics []string) []Path {
	var out []Path
	for i, a := range all {
		for _, k := range []int{(i + 1) % len(all), (i + len(all) - 1) % len(all)} {
			from, to := a.Facts.Host, all[k].Facts.Host
			mine, own := mainNIC(from, nics, a.At)
			theirs, addr := mainNIC(to, nics, all[k].At)
			w := Path{topology.Pair{From: i, To: k}, from.Name, to.Name, mine.Name, own, theirs.Name, addr, all[k].Facts.Ports, min(mine.MTU, theirs.MTU, largestPacket)}
			if i != k && addr.IsValid() && w.Bytes > 0 && !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	return out
}

// Tried is what came of the kinds of connections of a job, tried on a path.
type Tried struct {
	Err       error   // why nothing is known
	TCP       string  // why no connection was opened, "" if one was
	Elsewhere string  // the NIC of To at which From reaches it all the same
	UDP       string  // why no packet was sent, "" if some were
	Arrive    int     // bytes of the largest packet that arrived, 0 for none
	Lost      float64 // share of small packets
	Bandwidth float64 // bytes per second, 0 if too few arrived to tell
}

// Open reports whether all that a job sends arrives.
func (t Tried) Open(w Path) bool { return t.Err == nil && t.TCP == "" && t.Arrive >= w.Bytes }

const (
	minPacket     = 576  // bytes, which every network must carry
	largestPacket = 9000 // bytes, of those that are tried
	mostLost      = 0.01
	leastCarrying = 90e6 / 8 // bytes per second: a NIC of 100 Mbit/s carries 94
)

// JudgePaths interprets what came of each path.
func JudgePaths(paths []Path, tried []Tried) []Finding {
	var out []Finding
	for i, w := range paths {
		if t := tried[i]; t.closed() {
			out = append(out, blame(w, t, leaves(w, paths, tried)))
		} else {
			out = append(out, judgePath(w, t))
		}
	}
	return out
}

// closed reports whether a path carries nothing of TCP, or nothing of UDP.
func (t Tried) closed() bool { return t.Err == nil && (t.TCP != "" || t.Arrive == 0) }

// leaves reports whether a closed path is closed where it begins: others reach its end, and its host reaches none of
// several.
func leaves(w Path, paths []Path, tried []Tried) bool {
	shut, reached := 0, false
	for i, p := range paths {
		switch {
		case p.From == w.From && !tried[i].closed():
			return false
		case p.From == w.From:
			shut++
		case p.To == w.To && !tried[i].closed():
			reached = true
		}
	}
	return shut > 1 && reached
}

// blame describes a closed path. The fault is of the host where it ends, or begins.
func blame(w Path, t Tried, atItsBegin bool) Finding {
	j := judge{host: w.To}
	if atItsBegin || t.UDP != "" {
		j.host = w.From
	}
	var kinds []string
	if t.TCP != "" {
		kinds = append(kinds, "TCP ("+t.TCP+")")
	}
	if t.Arrive == 0 {
		kinds = append(kinds, strings.TrimSuffix("UDP ("+t.UDP+")", " ()"))
	}
	text := fmt.Sprintf("nothing arrives by %s from %s (%s %s) at ports of %s (%s %s)", strings.Join(kinds, " and "), w.From, w.NIC, w.Addr, w.To, w.ToNIC, w.ToAddr)
	if t.Elsewhere != "" {
		j.add("NIC for data", Fail, fmt.Sprintf("%s, but at %s: %s is the wrong NIC", text, t.Elsewhere, w.ToNIC), "--network-interfaces "+t.Elsewhere)
	} else {
		j.add("ports", Fail, text+", as behind a firewall", fmt.Sprintf("let TCP and UDP from %s in at ports %s of %s: iptables -I INPUT -s %s -j ACCEPT", w.From, w.Ports, w.To, w.Addr))
	}
	return j.findings[0]
}

// judgePath describes a path that carries something.
func judgePath(w Path, t Tried) Finding {
	j := judge{host: w.From}
	check := "path to " + w.To
	switch {
	case t.Err != nil:
		j.add(check, Warn, "not known: "+t.Err.Error(), fmt.Sprintf("ssh %s ping -c 1 %s", w.From, w.ToAddr))
	case t.Arrive < minPacket:
		j.add(check, Fail, fmt.Sprintf("packets of %d bytes are lost on the way, only those of %d arrive: no data passes", minPacket, t.Arrive),
			fmt.Sprintf("have the network between %s and %s carry packets of %d bytes", w.From, w.To, w.Bytes))
	case t.Arrive < w.Bytes:
		j.add(check, Fail, fmt.Sprintf("packets of %d bytes are lost on the way, those of %d arrive: connections open and then hang", w.Bytes, t.Arrive),
			fmt.Sprintf("ip link set dev %s mtu %d (on %s and %s), or have the switches between carry %d", w.NIC, t.Arrive, w.From, w.To, w.Bytes))
	case t.Lost >= mostLost:
		j.add(check, Warn, fmt.Sprintf("%.1f %% of the packets from %s to %s are lost", 100*t.Lost, w.NIC, w.ToAddr), fmt.Sprintf("look at cable and switch port: ssh %s ip -s link show %s", w.From, w.NIC))
	case t.Bandwidth < leastCarrying:
		j.add(check, Warn, fmt.Sprintf("%s from %s to %s is little for data", topology.BitRate(t.Bandwidth), w.NIC, w.ToAddr), fmt.Sprintf("ssh %s ethtool %s, and tc qdisc; --network-interfaces names a faster NIC", w.From, w.NIC))
	default:
		j.add(check, Pass, fmt.Sprintf("packets of %d bytes arrive, %s", t.Arrive, topology.BitRate(t.Bandwidth)), "")
	}
	return j.findings[0]
}

// mainNIC returns the selected NIC at which a host is reached first, and its address there.
func mainNIC(h topology.Host, nics []string, hint netip.Addr) (topology.NIC, netip.Addr) {
	addrs := topology.Addresses(h, nics, hint)
	if len(addrs) == 0 {
		return topology.NIC{}, netip.Addr{}
	}
	at := slices.IndexFunc(h.NICs, func(n topology.NIC) bool { return n.Name == h.NICAt(addrs[0]) })
	return h.NICs[at], addrs[0]
}
