package topology

import (
	"math"
	"slices"
)

// search looks for a good ring of many hosts: the nearest neighbour first, then improvements that move a stretch of
// hosts elsewhere without reversing it, because edges have a direction. Its order is deterministic, and every change
// makes the ring cheaper, so it ends.
type search struct {
	p      *problem
	floor  float64
	soft   *soft    // replaces the floor and the edges' own costs; may be nil
	in     []nearby // the cheapest edges into each host
	out    []nearby // and out of it
	next   []int
	prev   []int
	along  []int64 // price of the edge from each host to the next one
	prices []int64 // scratch: of all edges out of a host
}

const (
	neighbours = 8  // of a host, tried as its neighbours in the ring
	stretch    = 10 // the most hosts that are moved together
	softest    = 6  // how many kinds of soft costs are tried, each steeper than the one before
	raises     = 8  // how often a higher floor is tried
	// slow is the extra price of an edge below the floor: more than the crossings and round-trip times of any ring of
	// up to 2¹⁴ hosts.
	slow = int64(1) << 47
)

func newSearch(p *problem) *search {
	return &search{p: p, next: make([]int, p.n), prev: make([]int, p.n), along: make([]int64, p.n), prices: make([]int64, p.n)}
}

// soft is a cost that grows as an edge gets slower; squared makes it grow more steeply.
type soft struct {
	top, most float64
	squared   int
}

func (f *soft) cost(e *edge) int64 {
	slower := f.top / e.speed
	for range f.squared {
		slower *= slower
	}
	return e.cost&^(crossing-1) + int64(min(1000*slower, f.most))
}

// ringBySoftCost is ring without a floor, by soft costs. A ring that is cheap by these has few slow edges, whereas
// prices with a floor only see the ones below it.
func (s *search) ringBySoftCost(top float64, squared int) (order []int, ok bool) {
	s.soft = &soft{top: top, most: float64(crossing/int64(s.p.n) - 1), squared: squared}
	defer func() { s.soft = nil }()
	return s.ring(0)
}

func (s *search) price(from, to int) int64 {
	e := &s.p.edges[from*s.p.n+to]
	switch {
	case s.soft != nil:
		return s.soft.cost(e)
	case e.speed < s.floor:
		return e.cost + slow
	}
	return e.cost
}

// pricesFrom returns the prices of all edges out of a host. They are valid until the next call.
func (s *search) pricesFrom(host int) []int64 {
	edges := s.p.edges[host*s.p.n : (host+1)*s.p.n]
	prices := s.prices[:len(edges)]
	if f := s.soft; f != nil {
		for to := range edges {
			prices[to] = f.cost(&edges[to])
		}
		return prices
	}
	floor := s.floor
	for to := range edges {
		e := &edges[to]
		x := e.cost
		if e.speed < floor { // taken at random: one more addition is faster than a branch misprediction
			x += slow
		}
		prices[to] = x
	}
	return prices
}

// setFloor adds the extra price to edges below a bandwidth, also to neighbours that were found before.
func (s *search) setFloor(floor float64) {
	s.floor = floor
	for host := range s.in {
		in, out := &s.in[host], &s.out[host]
		for k, from := range in.list() {
			in.prices[k] = s.price(from, host)
		}
		for k, to := range out.list() {
			out.prices[k] = s.price(host, to)
		}
	}
}

// ring returns a cheap ring, and whether all its edges have at least the given bandwidth.
func (s *search) ring(floor float64) (order []int, ok bool) {
	if s.p.over() {
		return listed(s.p.n), true
	}
	s.findNeighbours(floor)
	s.nearest()
	s.improve()
	return s.order(), s.reached()
}

// follow adopts a ring as it is.
func (s *search) follow(ring []int) {
	for i, host := range ring {
		s.link(host, ring[(i+1)%len(ring)])
	}
}

// raise repairs a ring to reach the highest floor, up to top, that costs no crossing, and returns it. It moves hosts
// next to the neighbours that were found last.
func (s *search) raise(best []int, top float64) []int {
	crossings, low, high := s.p.crossings(best), s.p.slowest(best), top
	for try := range raises {
		if s.p.over() {
			break
		}
		floor := low // at first only what makes it cheaper
		if try > 0 {
			floor = (low + high) / 2
		}
		s.setFloor(floor)
		s.follow(best)
		s.improve()
		if order := s.order(); s.reached() && s.p.crossings(order) <= crossings {
			best, low = order, s.p.slowest(order)
		} else {
			high = floor
		}
	}
	return best
}

// order returns the ring starting at host 0.
func (s *search) order() (order []int) {
	for i, host := 0, 0; i < s.p.n; i, host = i+1, s.next[host] {
		order = append(order, host)
	}
	return order
}

// reached reports whether all edges have at least the floor.
func (s *search) reached() bool {
	return slices.Max(s.along) < slow
}

// findNeighbours sets a floor and visits all edges once, in memory order. Each host starts with the hosts after it in
// the host list, so that equal hosts do not all get the same neighbours.
func (s *search) findNeighbours(floor float64) {
	n := s.p.n
	s.floor = floor
	s.in, s.out = make([]nearby, n), make([]nearby, n)
	limits := make([]int64, n) // an edge into a host must cost less to make its list
	for i := range limits {
		limits[i] = math.MaxInt64
	}
	for i := range n {
		limit := int64(math.MaxInt64) // the same for edges out of host i
		prices := s.pricesFrom(i)
		for _, part := range [][2]int{{i + 1, n}, {0, i}} {
			for j := part[0]; j < part[1]; j++ {
				x := prices[j]
				if x < limit {
					limit = s.out[i].insert(j, x)
				}
				if x < limits[j] {
					limits[j] = s.in[j].insert(i, x)
				}
			}
		}
	}
}

// nearby holds the hosts with the lowest prices, cheapest first, of equal ones the one offered first.
type nearby struct {
	count  int
	hosts  [neighbours]int
	prices [neighbours]int64
}

func (l *nearby) list() []int { return l.hosts[:l.count] }

// insert adds a host and returns the price that the next one must be below.
func (l *nearby) insert(host int, price int64) (limit int64) {
	if l.count < neighbours {
		l.count++
	}
	at := l.count - 1
	for ; at > 0 && l.prices[at-1] > price; at-- {
		l.hosts[at], l.prices[at] = l.hosts[at-1], l.prices[at-1]
	}
	l.hosts[at], l.prices[at] = host, price
	if l.count < neighbours {
		return math.MaxInt64
	}
	return l.prices[neighbours-1]
}

// nearest starts with host 0 and repeatedly visits the nearest host not visited yet, of equal ones the first in the
// list.
func (s *search) nearest() {
	n := s.p.n
	left, visited := listed(n)[1:], make([]bool, n)
	from := 0
	visited[0] = true
	for range n - 1 {
		next := s.nearestOf(&s.out[from], visited)
		if next < 0 {
			left = slices.DeleteFunc(left, func(host int) bool { return visited[host] })
			prices := s.pricesFrom(from)
			next = left[0]
			for _, j := range left {
				if prices[j] < prices[next] {
					next = j
				}
			}
		}
		s.link(from, next)
		visited[next] = true
		from = next
	}
	s.link(from, 0)
}

// nearestOf returns the nearest of a host's neighbours that is not visited, -1 if a host outside the list may be as
// near.
func (s *search) nearestOf(l *nearby, visited []bool) (host int) {
	host = -1
	best := l.prices[l.count-1]
	for k, j := range l.list() {
		if x := l.prices[k]; !visited[j] && (x < best || x == best && host >= 0 && j < host) {
			best, host = x, j
		}
	}
	return host
}

func (s *search) link(from, to int) {
	s.next[from], s.prev[to], s.along[from] = to, from, s.price(from, to)
}

// improve moves stretches of hosts next to neighbours of their ends as long as that makes the ring cheaper.
func (s *search) improve() {
	n := s.p.n
	queue, queued := make([]int, 0, 2*n), make([]bool, n)
	push := func(hosts ...int) {
		for _, h := range hosts {
			if !queued[h] {
				queue, queued[h] = append(queue, h), true
			}
		}
	}
	for i, host := 0, 0; i < n; i, host = i+1, s.next[host] {
		push(host)
	}
	for len(queue) > 0 {
		first := queue[0]
		queue, queued[first] = queue[1:], false
		last := first
		for length := 1; length <= stretch; length, last = length+1, s.next[last] {
			before, after := s.prev[first], s.next[last]
			to, found := s.place(first, last)
			if !found {
				continue
			}
			push(first, last, before, after, to, s.next[to], s.prev[before], s.prev[to])
			s.link(before, after)
			s.link(last, s.next[to])
			s.link(to, first)
			break
		}
	}
}

// place returns the host after which the stretch from first to last costs least, if that is less than now.
func (s *search) place(first, last int) (to int, found bool) {
	before, after := s.prev[first], s.next[last]
	gain := s.along[before] + s.along[last] - s.price(before, after)
	best := int64(0)
	// try puts it after c. The price of one of the two new edges is known.
	try := func(c int, known int64, other func(c int) int64) {
		if gain+s.along[c]-known <= best || c == before {
			return // whatever the other one costs
		}
		for h := first; ; h = s.next[h] {
			if h == c {
				return
			}
			if h == last {
				break
			}
		}
		if x := gain + s.along[c] - known - other(c); x > best {
			best, to, found = x, c, true
		}
	}
	in, out := &s.in[first], &s.out[last]
	for k, c := range in.list() {
		try(c, in.prices[k], func(c int) int64 { return s.price(last, s.next[c]) })
	}
	for k, d := range out.list() {
		try(s.prev[d], out.prices[k], func(c int) int64 { return s.price(c, first) })
	}
	return to, found
}
