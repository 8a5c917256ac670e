package topology

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
)

// A rail is a network in which all hosts have a NIC that data goes over, by the name of its prefix. If there are
// several, all data takes one ring, and every stream that is free carries what is next: so each host's NICs carry as much
// as they can together, and a slow one is no harm. That is the best there is where NICs are slow, because any ring
// passes all of them. Where it is ways between hosts that are slow, and others in one network than in the other, one
// ring may not get past all of them, but a ring in each network past its own.

// RailRing is the ring of a part of large tensors, over one of several rails.
type RailRing struct {
	Rail  string   // its network
	Order []int    // as Ring.Order
	Why   []string // as Ring.Why
	Speed float64  // of its slowest edge, bytes per second
	Share int      // of a tensor, in thousandths or nearly so
}

// worthRings is how many times as fast as one ring several have to be together: one adapts to what NICs carry, and needs no
// tensor to be large.
const worthRings = 1.1

// mostRails bounds how many rings there are at the same time.
const mostRails = 8

// Network returns the network in which a NIC is reached: that of its first IPv4 address, or else of its first one. It is
// not valid if the NIC has none. A prefix of one address, as clouds and DHCPv6 give them, is none: it says nothing of others.
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

// single reports whether a NIC has an address with a prefix of that address alone.
func (n NIC) single() bool {
	return slices.ContainsFunc(n.Addrs, func(s string) bool {
		p, err := netip.ParsePrefix(s)
		return err == nil && p.IsSingleIP() && !p.Addr().IsLinkLocalUnicast()
	})
}

// Rails returns the networks of the hosts' NICs that are up, in an order that is the same wherever it is asked, if all
// hosts have the same ones, and none otherwise. Hosts should have only those NICs that data goes over (OnlyNICs).
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
	return common[:min(len(common), mostRails)]
}

// ChosenRails returns the networks in which all hosts have NICs that the user chose by a list, none without one.
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

// WithSums returns the edges, and before them what all rails together carry between two hosts where that was measured
// on one of them at least, and something is known of the others. A way that could not be measured on one of them is none to take.
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

// OverRails returns the ring with a ring for each rail beside it, if these carry more together than it does over all
// rails, by what was measured on every edge of them. Either way it says what was compared. When ctx is
// over it returns soon, with any rings.
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
