package topology

import (
	"fmt"
	"slices"
	"strings"
)

// worthwhile is how many times faster the slowest edge of another ring has to be for a change in the middle of a
// job: a change stops the job for a moment, and what was measured under load is not exact.
const worthwhile = 1.25

// Change is another ring for hosts that have one.
type Change struct {
	Ring      Ring
	Now, Then float64 // bandwidth of the slowest edge of the present ring and of the other, bytes per second
	Fewer     int     // crossings between ESXi hosts, racks, zones and networks, and NUMA nodes of NICs
	// Unsure are edges of the other ring, and of the present one, that nobody has measured: they may be slower than
	// they look. Measure them and ask again before the ring is changed.
	Unsure []Pair
	Why    string
}

// Reorder returns the ring to change to from one in the given order, and whether that pays: if its slowest edge
// is a quarter faster, or as fast and it crosses fewer borders. Of rings that are alike it is the one that is most
// like the present one. If it does not pay, the Change is empty.
func Reorder(by By, hosts []Host, edges []Edge, order []int) (Change, bool) {
	n := len(hosts)
	if n < 3 || len(order) != n || by == ByHost { // of two hosts there is one ring
		return Change{}, false
	}
	all := edges
	if by == ByTopology {
		edges = nil
	}
	// As if the host list were in the order of the present ring: it decides where nothing else does.
	place := make([]int, n)
	listed := make([]Host, n)
	for i, host := range order {
		place[host], listed[i] = i, hosts[host]
	}
	var moved []Edge
	for _, e := range edges {
		if e.From >= 0 && e.From < n && e.To >= 0 && e.To < n {
			e.From, e.To = place[e.From], place[e.To]
			moved = append(moved, e)
		}
	}
	p := newProblem(listed, moved)
	present := make([]int, n)
	for i := range present {
		present[i] = i
	}
	found := p.solve()
	c := Change{Now: p.slowest(present), Then: p.slowest(found), Fewer: int(p.crossings(present) - p.crossings(found))}
	faster := c.Then >= worthwhile*c.Now && p.anyKnown(present)
	if !faster && (c.Fewer <= 0 || c.Then < (1-tolerance)*c.Now) {
		return Change{}, false
	}
	ring := make([]int, n)
	for i, at := range found {
		ring[i] = order[at]
	}
	c.Ring = Keep(hosts, all, ring)
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
	if faster {
		why = append(why, fmt.Sprintf("its slowest edge carries %s instead of %s", BitRate(c.Then), BitRate(c.Now)))
	}
	if c.Fewer > 0 {
		why = append(why, fmt.Sprintf("it crosses %d borders less", c.Fewer))
	}
	c.Why = strings.Join(why, ", ")
	return c, true
}

// anyKnown reports whether something is known of the edges of a ring.
func (p *problem) anyKnown(order []int) bool {
	for i, from := range order {
		if p.known[from*p.n+order[(i+1)%len(order)]] != unknown {
			return true
		}
	}
	return false
}
