package topology

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
)

// worthwhile is how many times faster the slowest edge of a new ring must be to justify a change within a job: a change
// pauses the job for a moment, and measurements under load are inexact.
const worthwhile = 1.25

// Change is a new ring for hosts that have one.
type Change struct {
	Ring      Ring
	Now, Then float64 // bandwidth of the slowest edge of the present ring and of the new one, bytes per second
	Fewer     int     // crossings between ESXi hosts, racks, zones and networks, and NUMA nodes of NICs
	// Unsure are edges of either ring that were not measured: they may be slower than they look. Measure them and call
	// Reorder again before changing the ring.
	Unsure []Pair
	Why    string
}

// Reorder returns the ring to change to from the given order, and whether the change pays: if its slowest edge is a
// quarter faster, or as fast with fewer crossings. Of equally good rings it chooses the one that keeps the most edges
// of the present ring, regardless of round-trip times and of differences in bandwidth within the tolerance, which vary
// with each measurement. If no change pays, the Change is empty.
//
// Up to 12 hosts no ring keeps more edges. Beyond, the present ring is repaired where it is slow or crosses too often;
// only if that fails and another ring is far better, the result is that one. When ctx is done, Reorder returns soon
// with an arbitrary ring.
func Reorder(ctx context.Context, by By, hosts []Host, edges []Edge, order []int) (Change, bool) {
	n := len(hosts)
	if n < 3 || len(order) != n || by == ByHost { // two hosts have only one ring
		return Change{}, false
	}
	all := edges
	if by == ByTopology {
		edges = nil
	}
	// Renumber the hosts in the order of the present ring, which then goes from each host to the next.
	place := make([]int, n)
	listed := make([]Host, n)
	for i, host := range order {
		place[host], listed[i] = i, hosts[host]
	}
	moved := make([]Edge, 0, len(edges))
	for _, e := range edges {
		if e.From >= 0 && e.From < n && e.To >= 0 && e.To < n {
			e.From, e.To = place[e.From], place[e.To]
			moved = append(moved, e)
		}
	}
	p := newProblem(listed, moved)
	p.ctx = ctx
	p.chargeChanges()
	present := p.listed()
	found := p.change(present)
	if !p.pays(present, found) {
		return Change{}, false
	}
	c := Change{Now: p.slowest(present), Then: p.slowest(found), Fewer: int(p.crossings(present) - p.crossings(found))}
	ring := make([]int, n)
	for i, at := range found {
		ring[i] = order[at]
	}
	c.Ring = Keep(hosts, all, ring)
	if by == ByTopology {
		c.Ring = c.Ring.because(labelOrder)
	}
	c.Ring = c.Ring.since(order)
	for _, ring := range [][]int{found, present} {
		for i, from := range ring {
			to := ring[(i+1)%n]
			pair := Pair{order[from], order[to]}
			if by != ByTopology && !p.known[from*n+to].fact() && !slices.Contains(c.Unsure, pair) {
				c.Unsure = append(c.Unsure, pair)
			}
		}
	}
	var why []string
	switch {
	case p.avoids(present, found):
		why = append(why, "it leaves a path that could not be measured")
	case p.faster(present, found):
		why = append(why, fmt.Sprintf("its slowest edge carries %s instead of %s", BitRate(c.Then), BitRate(c.Now)))
	}
	if c.Fewer > 0 {
		why = append(why, fmt.Sprintf("it crosses %d borders less", c.Fewer))
	}
	c.Why = strings.Join(why, ", ")
	return c, true
}

// Join inserts the hosts that an order lacks, one after the other, each where the ring crosses least and, among such
// positions, where its edges are fastest. The other hosts keep their order.
func Join(hosts []Host, edges []Edge, order []int) []int {
	if len(order) == len(hosts) {
		return order
	}
	order = slices.Clone(order)
	p := newProblem(hosts, edges)
	for host := range hosts {
		if slices.Contains(order, host) {
			continue
		}
		at, crosses, speed := len(order), int64(math.MaxInt64), 0.0
		for i := len(order); i > 0; i-- { // between i-1 and i; the end first, where the host list has it
			from, to := order[i-1], order[i%len(order)]
			x := (p.edges[from*p.n+host].cost/crossing + p.edges[host*p.n+to].cost/crossing) - p.edges[from*p.n+to].cost/crossing
			slower := min(p.edges[from*p.n+host].speed, p.edges[host*p.n+to].speed)
			if x < crosses || x == crosses && slower > speed {
				at, crosses, speed = i, x, slower
			}
		}
		order = slices.Insert(order, at, host)
	}
	return order
}

// chargeChanges makes prices count edges outside the present ring, in which each host is followed by the next, instead
// of round-trip times.
func (p *problem) chargeChanges() {
	for at, e := range p.edges {
		p.edges[at].cost = e.cost/crossing*crossing + 1
	}
	for from := range p.n {
		p.edges[from*p.n+(from+1)%p.n].cost--
	}
}

// change returns the ring that keeps the most edges of the present one, among equally good rings.
func (p *problem) change(present []int) []int {
	_, top := p.bounds()
	if !p.room(present, top) {
		return present
	}
	if p.n <= exactLimit {
		order, _ := p.highest(p.levels(), p.exact)
		return order
	}
	s := newSearch(p)
	order, _ := p.highest(steps(top, p.slowest(present)), func(floor float64) ([]int, bool) { return s.near(present, floor) })
	if !p.pays(present, order) {
		order = present
	}
	if p.room(order, top) {
		if other := p.solveMany(); p.pays(order, other) {
			return other
		}
	}
	return order
}

// avoids reports whether a ring has an edge that could not be measured and another ring has none.
func (p *problem) avoids(now, then []int) bool {
	goes := func(order []int) bool {
		for i, from := range order {
			if p.known[from*p.n+order[(i+1)%len(order)]] == blocked {
				return true
			}
		}
		return false
	}
	return p.shut && goes(now) && !goes(then)
}

// faster reports whether the slowest edge of another ring is fast enough for a change to pay.
func (p *problem) faster(now, then []int) bool {
	return p.slowest(then) >= worthwhile*p.slowest(now) && p.anyKnown(now)
}

// pays reports whether a change from one ring to another pays.
func (p *problem) pays(now, then []int) bool {
	return p.faster(now, then) || p.crossings(then) < p.crossings(now) && p.slowest(then) >= (1-tolerance)*p.slowest(now)
}

// room reports whether a change from this ring may pay at all, if no ring's slowest edge is faster than top.
func (p *problem) room(order []int, top float64) bool {
	return top >= worthwhile*p.slowest(order) && p.anyKnown(order) || p.crossings(order) > p.least
}

// anyKnown reports whether something is known about the edges of a ring.
func (p *problem) anyKnown(order []int) bool {
	for i, from := range order {
		if p.known[from*p.n+order[(i+1)%len(order)]] != unknown {
			return true
		}
	}
	return false
}
