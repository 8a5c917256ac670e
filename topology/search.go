package topology

import "slices"

// search looks for a good ring of many hosts: the nearest host next, then improvements that move a
// stretch of hosts elsewhere, without turning it round, because edges have a direction. All in the same
// order every time; every change makes the ring cheaper, so it ends.
type search struct {
	p      *problem
	prices []int64  // of all edges with the present floor: in one place, because to fetch them from memory is what takes the time
	in     []nearby // the cheapest ways into each host
	out    []nearby // and out of it
	next   []int
	prev   []int
}

const (
	neighbours = 8  // of a host, that are tried beside it
	stretch    = 3  // hosts that are moved together, at most
	rotations  = 10 // per host, to mend a ring
	// fewRotations is what a ring of few hosts gets.
	fewRotations = 400
	touches      = 2  // per host, to mend one that is good enough
	raises       = 5  // how often a higher floor is tried
	exchanges    = 16 // slow edges that are replaced one by one
	// slow is the extra price of an edge below the floor: more than any ring has in crossings and
	// round-trip times, for up to 2¹⁴ hosts.
	slow = int64(1) << 47
)

func newSearch(p *problem) *search {
	return &search{p: p, prices: make([]int64, p.n*p.n), next: make([]int, p.n), prev: make([]int, p.n)}
}

// setFloor has edges below a bandwidth cost extra.
func (s *search) setFloor(floor float64) {
	for at, cost := range s.p.cost {
		if s.p.speed[at] < floor {
			cost += slow
		}
		s.prices[at] = cost
	}
}

func (s *search) price(from, to int) int64 { return s.prices[from*s.p.n+to] }

// ring returns a cheap ring, and whether all its edges have at least the given bandwidth.
func (s *search) ring(floor float64) (order []int, ok bool) {
	s.setFloor(floor)
	s.findNeighbours()
	s.nearest()
	return s.refine()
}

// near is ring with as few changes to a present ring as it finds.
func (s *search) near(present []int, floor float64) (order []int, ok bool) {
	s.setFloor(floor)
	s.findNeighbours()
	s.follow(present)
	s.exchange()
	return s.refine()
}

// refine makes the ring cheaper, and has it reach the floor if it can.
func (s *search) refine() (order []int, ok bool) {
	s.improve()
	s.mend(max(fewRotations, rotations*s.p.n))
	s.improve()
	return s.order(), s.reached()
}

// follow takes a ring as it is.
func (s *search) follow(ring []int) {
	for i, host := range ring {
		s.link(host, ring[(i+1)%len(ring)])
	}
}

// raise mends a ring to have as high a floor, up to top, as costs no crossing, and returns it.
func (s *search) raise(best []int, top float64) []int {
	crossings, low, high := s.p.crossings(best), s.p.slowest(best), top
	for try := range raises {
		s.follow(best)
		floor := low // and at first only what makes it cheaper
		if try > 0 {
			floor = (low + high) / 2
		}
		s.setFloor(floor)
		s.improve()
		s.mend(touches * s.p.n)
		s.improve()
		if order := s.order(); s.reached() && s.p.crossings(order) <= crossings {
			best, low = order, s.p.slowest(order)
		} else {
			high = floor
		}
	}
	return best
}

// order returns the ring from host 0 on.
func (s *search) order() (order []int) {
	for i, host := 0, 0; i < s.p.n; i, host = i+1, s.next[host] {
		order = append(order, host)
	}
	return order
}

// reached reports whether all edges have at least the floor.
func (s *search) reached() bool {
	for host, next := range s.next {
		if s.price(host, next) >= slow {
			return false
		}
	}
	return true
}

// findNeighbours goes through all edges once, in the order they have in memory. Each host looks at those
// behind it in the host list first, so that of equal hosts not all have the same neighbours.
func (s *search) findNeighbours() {
	n := s.p.n
	in, out := make([]nearby, n), make([]nearby, n)
	for i := range n {
		for k := 1; k < n; k++ {
			j := i + k
			if j >= n {
				j -= n
			}
			x := s.price(i, j)
			out[i].offer(j, x)
			in[j].offer(i, x)
		}
	}
	s.in, s.out = in, out
}

// exchange replaces edges below the floor while that takes few steps, each by what changes only two edges more: of three
// parts of the ring, from the slow edge on, the first two change places. It tries all of these, and takes the one that
// costs least without regard to the floor, but for the edges that another slow edge would change later.
func (s *search) exchange() {
	const later = 3
	left := func(from, to int) int64 {
		x := s.price(from, to)
		if x >= slow {
			x += later - slow
		}
		return x
	}
	for range exchanges {
		ring := s.order()
		at := slices.IndexFunc(ring, func(host int) bool { return s.price(host, s.next[host]) >= slow })
		if at < 0 {
			return
		}
		ring = slices.Concat(ring[at+1:], ring[:at+1]) // the slow edge is from its last host to its first
		first, last := ring[0], ring[len(ring)-1]
		best, middle, end := slow/2, 0, 0
		for i, from := range ring[:len(ring)-2] {
			cost := s.price(last, ring[i+1]) - left(from, ring[i+1])
			if cost >= slow/2 {
				continue
			}
			for j := i + 1; j < len(ring)-1; j++ {
				if x := cost + s.price(ring[j], first) + s.price(from, ring[j+1]) - left(ring[j], ring[j+1]); x < best {
					best, middle, end = x, i+1, j+1
				}
			}
		}
		if end == 0 {
			return
		}
		s.follow(slices.Concat(ring[middle:end], ring[:middle], ring[end:]))
	}
}

// nearby are the hosts with the lowest prices, cheapest first, of equal ones the one offered first.
type nearby struct {
	count  int
	hosts  [neighbours]int
	prices [neighbours]int64
}

func (l *nearby) list() []int { return l.hosts[:l.count] }

func (l *nearby) offer(host int, price int64) {
	if l.count < neighbours || price < l.prices[neighbours-1] {
		l.insert(host, price)
	}
}

func (l *nearby) insert(host int, price int64) {
	if l.count < neighbours {
		l.count++
	}
	at := l.count - 1
	for ; at > 0 && l.prices[at-1] > price; at-- {
		l.hosts[at], l.prices[at] = l.hosts[at-1], l.prices[at-1]
	}
	l.hosts[at], l.prices[at] = host, price
}

// nearest starts with host 0 and goes on to the nearest host not visited yet.
func (s *search) nearest() {
	n := s.p.n
	left := make([]int, 0, n-1) // in the order of the host list
	for i := 1; i < n; i++ {
		left = append(left, i)
	}
	from := 0
	for len(left) > 0 {
		best, at := s.price(from, left[0]), 0
		for k, j := range left {
			if x := s.price(from, j); x < best {
				best, at = x, k
			}
		}
		s.link(from, left[at])
		from = left[at]
		left = append(left[:at], left[at+1:]...)
	}
	s.link(from, 0)
}

func (s *search) link(from, to int) { s.next[from], s.prev[to] = to, from }

// improve moves stretches of up to three hosts beside neighbours of their ends for as long as that makes
// the ring cheaper.
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

// place returns the host after which the stretch from first to last costs least, if that is less than
// where it is.
func (s *search) place(first, last int) (to int, found bool) {
	before, after := s.prev[first], s.next[last]
	gain := s.price(before, first) + s.price(last, after) - s.price(before, after)
	best := int64(0)
	try := func(c int) {
		if c == before {
			return
		}
		for h := first; ; h = s.next[h] {
			if h == c {
				return
			}
			if h == last {
				break
			}
		}
		d := s.next[c]
		if x := gain + s.price(c, d) - s.price(c, first) - s.price(last, d); x > best {
			best, to, found = x, c, true
		}
	}
	for _, c := range s.in[first].list() {
		try(c)
	}
	for _, d := range s.out[last].list() {
		try(s.prev[d])
	}
	return to, found
}

// mend replaces edges below the floor until there are none, or so many rotations are used up.
func (s *search) mend(most int) {
	for left := most; left > 0; {
		slowEdge := -1
		for k, a := 0, 0; k < s.p.n && slowEdge < 0; k, a = k+1, s.next[a] {
			if s.price(a, s.next[a]) >= slow {
				slowEdge = a
			}
		}
		if slowEdge < 0 {
			return
		}
		path := newPath(s, slowEdge)
		for !path.closes() {
			if left--; left < 0 || !path.rotate() {
				return
			}
		}
		path.close()
	}
}

// path is a ring without one slow edge. A rotation takes two good edges, a→b' and b→c', where the path is
// a' … b b' … c c' … a, which makes it a' … b c' … a b' … c: it has another end. Once the end has a good
// edge to the start, the ring can be closed. Every so often the other end is rotated, with all edges
// turned round.
type path struct {
	s      *search
	turned bool
	hosts  []int
	at     []int // at[host] is its index in hosts
	spare  []int
	ended  []int // how often a host became the end: those that did seldom come first
	turns  int
}

const turnEvery = 16

func newPath(s *search, last int) *path {
	n := s.p.n
	p := &path{s: s, hosts: make([]int, n), at: make([]int, n), spare: make([]int, 0, n), ended: make([]int, n)}
	for k, h := 0, s.next[last]; k < n; k, h = k+1, s.next[h] {
		p.hosts[k] = h
	}
	p.number(0)
	return p
}

func (p *path) number(from int) {
	for k := from; k < len(p.hosts); k++ {
		p.at[p.hosts[k]] = k
	}
}

func (p *path) good(from, to int) bool {
	if p.turned {
		from, to = to, from
	}
	return p.s.price(from, to) < slow
}

// after returns hosts that a good edge may lead to.
func (p *path) after(host int) []int {
	if p.turned {
		return p.s.in[host].list()
	}
	return p.s.out[host].list()
}

func (p *path) closes() bool { return p.good(p.hosts[len(p.hosts)-1], p.hosts[0]) }

func (p *path) close() {
	if p.turned {
		p.turn()
	}
	for k, h := range p.hosts {
		p.s.link(h, p.hosts[(k+1)%len(p.hosts)])
	}
}

func (p *path) turn() {
	slices.Reverse(p.hosts)
	p.number(0)
	p.turned = !p.turned
}

// rotate rotates one of the ends. If neither has good edges for that, it takes a slow b→c', which is to
// be mended later. It reports false if there is not even a good a→b'.
func (p *path) rotate() bool {
	if p.turns++; p.turns%turnEvery == 0 {
		p.turn()
	}
	for _, alsoSlow := range []bool{false, true} {
		for range 2 {
			if p.rotateEnd(alsoSlow) {
				return true
			}
			p.turn()
		}
	}
	return false
}

func (p *path) rotateEnd(alsoSlow bool) bool {
	a := p.hosts[len(p.hosts)-1]
	b, c := -1, -1
	for _, b2 := range p.after(a) {
		i := p.at[b2] - 1
		if i < 0 || !p.good(a, b2) {
			continue
		}
		candidates := p.after(p.hosts[i])
		if alsoSlow {
			candidates = p.hosts[i+1:]
		}
		for _, c2 := range candidates {
			j := p.at[c2] - 1
			if j <= i || !alsoSlow && !p.good(p.hosts[i], c2) {
				continue
			}
			if b < 0 || p.ended[p.hosts[j]] < p.ended[p.hosts[c]] {
				b, c = i, j
			}
		}
	}
	if b < 0 {
		return false
	}
	p.ended[p.hosts[c]]++
	p.spare = append(p.spare[:0], p.hosts[b+1:c+1]...)
	copy(p.hosts[b+1:], p.hosts[c+1:])
	copy(p.hosts[len(p.hosts)-len(p.spare):], p.spare)
	p.number(b + 1)
	return true
}
