package topology

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
)

// A rail is a network in which every host has a NIC for data, named by its prefix. With several rails all data uses one
// ring, and any idle stream takes the next segment: so each host's NICs carry as much as they can together, and a slow
// one does no harm. That is optimal where NICs are slow, because any ring passes all of them. Where paths between hosts
// are slow, and different ones in each network, one ring may not avoid them all, but a ring per network can avoid its
// own.

// RailRing is the ring of a share of each large tensor, over one of several rails.
type RailRing struct {
	Rail  string   // its network
	Order []int    // as Ring.Order
	Why   []string // as Ring.Why
	Speed float64  // bandwidth of its slowest edge, bytes per second
	Share int      // of a tensor, in about thousandths
}

// worthRings is how many times as fast as a single ring several must be together: a single ring adapts to the NICs, and
// works for tensors of any size.
const worthRings = 1.1

// maxRails bounds the number of simultaneous rings.
const maxRails = 8

// Network returns the network of a NIC, by its first IPv4 address or else by its first address. It is invalid if
// the NIC has none. A prefix of a single address, as assigned by clouds and DHCPv6, does not count: it does not
// describe a network.
func (n NIC) Network() (network netip.Prefix) {
	for _, s := range n.Addrs {
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil || p.IsSingleIP() || p.Addr().IsLinkLocalUnicast():
		case p.Addr().Is4():
			return p.Masked()
		case !network.IsValid():
			network = p.Masked()
		}
	}
	return network
}

// single reports whether a NIC has an address whose prefix is that address alone.
func (n NIC) single() bool {
	return slices.ContainsFunc(n.Addrs, func(s string) bool {
		p, err := netip.ParsePrefix(s)
		return err == nil && p.IsSingleIP() && !p.Addr().IsLinkLocalUnicast()
	})
}

// Rails returns the networks of the hosts' NICs that are up, in a fixed order, if all hosts have the same ones, and nil
// otherwise. Hosts should have only NICs for data (OnlyNICs).
func Rails(hosts []Host) []string {
	var common []string
	for i, h := range hosts {
		var rails []string
		for _, nic := range h.NICs {
			if network := nic.Network(); nic.Up && network.IsValid() {
				rails = append(rails, network.String())
			}
		}
		slices.Sort(rails)
		rails = slices.Compact(rails)
		if i > 0 && !slices.Equal(rails, common) {
			return nil
		}
		common = rails
	}
	return common[:min(len(common), maxRails)]
}

// ChosenRails returns the rails of the NICs that the user chose by a list, nil without a list.
func ChosenRails(hosts []Host, list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return Rails(OnlyNICs(hosts, list))
}

// onRail returns the problem of a ring over one rail.
func onRail(hosts []Host, edges []Edge, rail string) *problem {
	there := slices.Clone(hosts)
	for i, h := range there {
		there[i].NICs = slices.DeleteFunc(slices.Clone(h.NICs), func(n NIC) bool {
			network := n.Network()
			return !network.IsValid() || network.String() != rail
		})
	}
	var measured []Edge
	for _, e := range edges {
		if e.Rail == rail {
			e.Rail = ""
			measured = append(measured, e)
		}
	}
	return newProblem(there, measured)
}

// WithSums returns the edges, preceded by the sums over all rails between two hosts, where at least one rail was
// measured and the others are known. A pair that could not be measured on some rail stays blocked.
func WithSums(hosts []Host, edges []Edge, rails []string) []Edge {
	if len(rails) == 0 || !slices.ContainsFunc(edges, func(e Edge) bool { return e.Rail != "" }) {
		return edges
	}
	var on []*problem
	for _, rail := range rails {
		on = append(on, onRail(hosts, edges, rail))
	}
	var sums []Edge
	for from := range hosts {
		for to := range hosts {
			at := from*len(hosts) + to
			if from != to && slices.ContainsFunc(on, func(p *problem) bool { return p.known[at] == blocked }) {
				sums = append(sums, Edge{From: from, To: to, Blocked: true})
				continue
			}
			if from == to || !slices.ContainsFunc(on, func(p *problem) bool { return p.known[at].fact() }) ||
				slices.ContainsFunc(on, func(p *problem) bool { return p.known[at] == unknown }) {
				continue
			}
			e := Edge{From: from, To: to}
			for _, p := range on {
				e.Bandwidth += p.edges[at].speed
				if rtt := p.rtt[at]; rtt > 0 && (e.RTT == 0 || rtt < e.RTT) {
					e.RTT = rtt
				}
			}
			sums = append(sums, e)
		}
	}
	return append(sums, edges...)
}

// OverRails returns the ring together with a ring per rail, if measurements of all their edges show that these are
// faster together than the single ring over all rails. Split explains the comparison either way. When ctx is done,
// OverRails returns soon with arbitrary rings.
func (r Ring) OverRails(ctx context.Context, by By, hosts []Host, edges []Edge, rails []string) Ring {
	n := len(hosts)
	if by != "" && by != ByMeasured || len(rails) < 2 || n < 3 || len(r.Order) != n ||
		!slices.ContainsFunc(edges, func(e Edge) bool { return e.Rail != "" }) {
		return r
	}
	sum := make([]edge, n*n)
	var each []RailRing
	several := 0.0
	for _, rail := range rails {
		if ctx.Err() != nil {
			return r
		}
		p := onRail(hosts, edges, rail)
		p.ctx = ctx
		for at, e := range p.edges {
			sum[at].speed += e.speed
		}
		order := p.solve()
		if !p.measuredAll(order) || !p.measuredAll(r.Order) {
			return r
		}
		each = append(each, RailRing{Rail: rail, Order: order, Why: p.why(hosts, order), Speed: p.slowest(order)})
		several += p.slowest(order)
	}
	one := (&problem{n: n, edges: sum}).slowest(r.Order)
	if several < worthRings*one {
		r.Split = fmt.Sprintf("one ring over %d networks: it carries %s, a ring for each network %s", len(rails), BitRate(one), BitRate(several))
		return r
	}
	for i := range each {
		each[i].Share = max(1, int(math.Round(1000*each[i].Speed/several)))
	}
	r.Rails = each
	r.Split = fmt.Sprintf("large tensors take %d rings at once, one in each network: they carry %s, one ring over all %s", len(rails), BitRate(several), BitRate(one))
	return r
}

// measuredAll reports whether all edges of a ring were measured.
func (p *problem) measuredAll(order []int) bool {
	for i, from := range order {
		if !p.known[from*p.n+order[(i+1)%len(order)]].fact() {
			return false
		}
	}
	return true
}

// Legs returns the edges of the ring in its order, as Ring.Legs does.
func (r RailRing) Legs(hosts []Host, edges []Edge) []Leg {
	return Ring{Order: r.Order, Why: r.Why}.legs(onRail(hosts, edges, r.Rail))
}
