package network

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"gorun/topology"
)

// UnknownNICsError reports that none of the NICs that the user wants data to go over exist on the host.
type UnknownNICsError struct {
	wanted []string
	have   []topology.NIC
}

func (e *UnknownNICsError) Error() string {
	var have []string
	for _, n := range e.have {
		if what := describeNIC(n); n.Up {
			have = append(have, what)
		} else {
			have = append(have, what+" is down")
		}
	}
	if have == nil {
		have = []string{"none"}
	}
	return fmt.Sprintf("find address: none of %s is up here, where the NICs are: %s", strings.Join(e.wanted, ","),
		strings.Join(have, ", "))
}

func describeNIC(n topology.NIC) string {
	words := n.Name
	for _, word := range append([]string{n.Driver}, n.Addrs...) {
		if word != "" {
			words += " " + word
		}
	}
	return words
}

// Describe shows users of -v which of its NICs the others reach this host by.
func (n *Network) Describe() {
	if !n.job.Verbose || n.job.Alone {
		return
	}
	host := n.cfg.Daemon.Host()
	var over []string
	reached := n.own
	if len(n.nics) == 0 { // the others are for when the first is broken
		reached = reached[:min(len(reached), 1)]
	}
	for _, data := range reached {
		at, _ := netip.ParseAddrPort(data)
		what := at.Addr().String()
		for _, nic := range host.NICs {
			if nic.Name == host.NICAt(at.Addr()) {
				what = describeNIC(nic)
			}
		}
		over = append(over, what)
	}
	n.cfg.Say("data goes over %s", strings.Join(over, ", "))
	if nic, note := host.Idle(); note != "" {
		n.cfg.Say("%s; for the faster one, if all hosts reach each other there: --network-interfaces %s", note, nic)
	}
}

// chosenOf returns the NICs of these names, in the order of topology.Rails.
func chosenOf(names []string, nics []topology.NIC) []topology.NIC {
	var out []topology.NIC
	for _, name := range names {
		if i := slices.IndexFunc(nics, func(n topology.NIC) bool { return n.Name == name }); i >= 0 {
			out = append(out, nics[i])
		}
	}
	// The same order on all hosts, so that both ends of a stream know which network it is on.
	slices.SortStableFunc(out, func(a, b topology.NIC) int {
		return strings.Compare(a.Network().String(), b.Network().String())
	})
	return out
}

// DataNIC names the NIC of a host at whose address others find this one first, unless the user chose some.
func (n *Network) DataNIC(h topology.Host) string { return h.NICAt(n.dataAddress().Addr()) }

// dataAddress is where others find this host first, unless the user chose NICs.
func (n *Network) dataAddress() (at netip.AddrPort) {
	if len(n.job.NICs) == 0 && len(n.own) > 0 {
		at, _ = netip.ParseAddrPort(n.own[0])
	}
	return at
}

// DataRDMA names the RDMA device that carries data where the peer has one, too; "" if there is none, or the user chose
// NICs.
func (n *Network) DataRDMA() string {
	at := n.dataAddress()
	if n.transport == nil || !at.IsValid() {
		return ""
	}
	return n.transport.Device(net.TCPAddrFromAddrPort(at))
}

// Choose notes, for dialers, what the NICs that the user chose are like now.
func (n *Network) Choose() {
	nics := chosenOf(n.nics, n.cfg.Daemon.Host().NICs)
	n.chosen.Store(&nics)
}

// routes returns the addresses of a peer in the order in which a stream tries them. If the user chose several NICs,
// the streams of a link take turns at those whose network the peer is in, too, and so use all of them at once; what a
// broken one had to carry goes over the others. NICs that the user did not choose are not used like this: the same
// network may be another one elsewhere, as the networks of container bridges are.
func routes(data []string, chosen []topology.NIC, stream int) []string {
	var preferred []string
	for _, nic := range chosen {
		at := slices.IndexFunc(data, func(s string) bool {
			a, err := netip.ParseAddrPort(s)
			return err == nil && slices.ContainsFunc(nic.Addrs, func(own string) bool {
				p, err := netip.ParsePrefix(own)
				return err == nil && p.Contains(a.Addr()) && p.Addr() != a.Addr()
			})
		})
		if at >= 0 && !slices.Contains(preferred, data[at]) {
			preferred = append(preferred, data[at])
		}
	}
	if len(preferred) < 2 {
		return data
	}
	// The first stream has the small segments, which the last route takes: the others begin with the first.
	turn := (stream + len(preferred) - 1) % len(preferred)
	order := slices.Concat(preferred[turn:], preferred[:turn])
	for _, s := range data {
		if !slices.Contains(order, s) {
			order = append(order, s)
		}
	}
	return order
}
