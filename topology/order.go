package topology

import (
	"context"
	"math"
	"slices"
	"sort"
)

// tolerance is the part of the best possible bottleneck that may be given up for fewer crossings: measured bandwidths
// vary by as much from one minute to the next.
const tolerance = 0.1

// leastSpeed is the lowest speed that counts, in bytes per second. It bounds the steps of a search whatever a peer
// claims to have measured.
const leastSpeed = 1

// rttStep is the least difference between round-trip times that matters, in seconds.
const rttStep = 10e-6

// crossing is the cost of crossing a border.
const crossing = int64(1) << 30

// exactLimit is the largest number of hosts for which all rings are considered: the time doubles with every host.
const exactLimit = 12

// crossingLabels are the borders that an edge can cross.
var crossingLabels = []string{"esxi", "rack", "zone"}

// Order returns the ring for data. It starts at host 0, so that the same hosts always give the same ring, and is the
// best by, in this order:
//
//  1. the bandwidth of its slowest edge, which limits the ring; anything within 10 % of the best possible counts as equal,
//  2. how often it crosses from one ESXi host, rack or zone to another, from one network to another, or between the NUMA
//     nodes of a host's NICs (see networks),
//  3. the bandwidth of its slowest edge, now exactly,
//  4. the sum of its round-trip times,
//  5. the order of the host list.
//
// The bandwidth of an edge is what was measured on it, or else in the other direction, or else the speed of the slower
// host's interface: the one that carries data or, if that is unknown, the fastest. Where data goes over RDMA, what was
// measured in the job is the speed of that, and devices take the place of interfaces. An edge without any information
// counts as good as the best, and one that could not be measured as worse than all others.
//
// Up to 12 hosts the result is optimal. Beyond, it is a good ring found in a bounded number of steps; 1,000 hosts take
// some 11 ms of a CPU, or 65 ms if all million edges were measured (see make rings).
func Order(hosts []Host, edges []Edge) Ring { return order(context.Background(), hosts, edges) }

func order(ctx context.Context, hosts []Host, edges []Edge) Ring {
	switch len(hosts) {
	case 0:
		return Ring{}
	case 1:
		return Ring{Order: []int{0}}
	}
	p := newProblem(hosts, edges)
	p.ctx = ctx
	order := p.solve()
	return Ring{Order: order, Why: p.why(hosts, order)}
}

// problem is the input of the solvers: the prices of all edges, indexed by from×n+to.
type problem struct {
	ctx   context.Context // done once the result is no longer needed
	n     int
	edges []edge
	// known is the source of each speed; rtt is in seconds, 0 if unknown.
	known []source
	rtt   []float64
	timed bool // some round-trip time is known
	shut  bool // some edge could not be measured
	nets  *networks
}

// edge is what searches read all the time, with its fields side by side: with 1,000 hosts they wait for memory.
type edge struct {
	speed float64 // bytes per second
	// cost counts crossings, then units of rttStep. The sum over a ring keeps them apart.
	cost int64
}

// source is where a bandwidth comes from.
type source uint8

const (
	unknown source = iota
	blocked        // it could not be measured
	nominal        // reported by an interface whatever its real speed
	byNIC
	byDevice // reported by RDMA devices
	byFile   // given in the topology file for an interface
	measured
	inJob // measured by a job
)

// sources are the names of sources for programs, and what reasons call them.
var sources = [...]struct{ name, text string }{
	unknown: {"unknown", ""}, blocked: {"unknown", ""}, nominal: {"nominal", "nominal"}, byNIC: {"nic", "by NIC"},
	byDevice: {"nic", "by RDMA device"}, byFile: {"file", "by topology file"},
	measured: {"measured", "measured"}, inJob: {"job", "measured in the job"},
}

// fact reports whether a bandwidth was measured rather than reported by an interface.
func (s source) fact() bool { return s >= measured }

func newProblem(hosts []Host, edges []Edge) *problem {
	n := len(hosts)
	p := &problem{ctx: context.Background(), n: n, edges: make([]edge, n*n), known: make([]source, n*n), rtt: make([]float64, n*n)}
	p.measure(edges)
	labels := numberLabels(hosts)
	p.nets = newNetworks(hosts)
	nics, kinds, devices := make([]float64, n), make([]source, n), make([]float64, n)
	for i, h := range hosts {
		nics[i], kinds[i] = nicSpeed(h)
		if _, speed, found := h.carrier(); found && speed > 0 {
			devices[i] = bytesPerSecond(speed)
		}
	}
	best, missing := 1.0, false
	for i := range n {
		p.complete(i, nics, kinds, devices)
		p.charge(i, labels)
		for j, e := range p.edges[i*n : (i+1)*n] {
			if e.speed > best {
				best = e.speed
			}
			missing = missing || p.known[i*n+j] == unknown && i != j
		}
	}
	for at := range p.edges {
		if missing && p.known[at] == unknown {
			p.edges[at].speed = best
		}
	}
	if p.shut {
		p.avoid()
	}
	return p
}

// avoid makes edges that could not be measured half as fast as the slowest other edge, which exceeds the tolerance, and
// as long as the longest: a ring uses them only where it must.
func (p *problem) avoid() {
	slowest, longest := math.Inf(1), int64(0)
	for at, e := range p.edges {
		if at%(p.n+1) != 0 && p.known[at] != blocked { // not the diagonal
			slowest, longest = min(slowest, e.speed), max(longest, e.cost%crossing)
		}
	}
	if math.IsInf(slowest, 1) {
		slowest = 1
	}
	for at := range p.edges {
		if p.known[at] == blocked {
			p.edges[at].speed = slowest / 2
			p.edges[at].cost += longest - p.edges[at].cost%crossing
		}
	}
}

// measure adopts the measurements.
func (p *problem) measure(edges []Edge) {
	for k := range edges {
		e := &edges[k]
		if e.From < 0 || e.From >= p.n || e.To < 0 || e.To >= p.n || e.From == e.To || e.Rail != "" {
			continue
		}
		at := e.From*p.n + e.To
		if e.Bandwidth > 0 && !math.IsInf(e.Bandwidth, 0) {
			p.edges[at].speed, p.known[at] = max(e.Bandwidth, leastSpeed), measured
			if e.InJob {
				p.known[at] = inJob
			}
		} else if e.Blocked && p.known[at] == unknown {
			p.known[at], p.shut = blocked, true
		}
		if e.RTT > 0 && !math.IsInf(e.RTT, 0) {
			p.rtt[at], p.timed = e.RTT, true
		}
	}
}

// complete fills in the edges out of a host that were not measured: from the other direction, or from the slower host's
// interface, or from the slower of two RDMA devices.
func (p *problem) complete(i int, nics []float64, kinds []source, devices []float64) {
	for j := range p.n {
		at, back := i*p.n+j, j*p.n+i
		if p.known[at] == unknown && i != j {
			if p.known[back] == blocked {
				p.known[at] = blocked
			} else if p.known[back].fact() {
				p.edges[at].speed, p.known[at] = p.edges[back].speed, p.known[back]
			} else if slower := min(devices[i], devices[j]); slower > 0 {
				p.edges[at].speed, p.known[at] = slower, byDevice
			} else if slower := min(nics[i], nics[j]); slower > 0 {
				p.edges[at].speed, p.known[at] = slower, kinds[i]
				if nics[j] < nics[i] || nics[j] == nics[i] && kinds[j] == nominal {
					p.known[at] = kinds[j]
				}
			}
		}
		if p.timed && p.rtt[at] == 0 {
			p.rtt[at] = p.rtt[back]
		}
	}
}

// charge sets the costs of the edges out of a host.
func (p *problem) charge(i int, labels [][]int) {
	row := p.edges[i*p.n : (i+1)*p.n]
	most := float64(crossing/int64(p.n) - 1) // of one edge, so that n of them stay below a crossing
	for j, rtt := range p.rtt[i*p.n : (i+1)*p.n] {
		if rtt > 0 {
			row[j].cost = int64(min(rtt/rttStep, most) + 0.5)
		}
	}
	for _, number := range labels {
		group := number[i]
		for j, other := range number {
			if other != group {
				row[j].cost += crossing
			}
		}
	}
	if p.nets == nil {
		return
	}
	for j := range row {
		if i != j {
			row[j].cost += crossing * p.nets.crossings(i, j)
		}
	}
}

// nicSpeed returns the bytes per second of the NIC that carries data, or else of the fastest with a known speed, 0 if
// there is none, and the source of that speed.
func nicSpeed(h Host) (bytes float64, kind source) {
	nic, found := fastest(h.carriers(), func(n NIC) bool { return n.Speed > 0 })
	switch {
	case !found:
		return 0, unknown
	case nic.Given:
		kind = byFile
	case nic.Nominal():
		kind = nominal
	default:
		kind = byNIC
	}
	return bytesPerSecond(nic.Speed), kind
}

// Nominal returns the bytes per second of what carries data between two hosts, as reported by the slower one.
func Nominal(a, b Host) float64 { return newProblem([]Host{a, b}, nil).edges[1].speed }

// bytesPerSecond converts Mbit/s.
func bytesPerSecond(speed int) float64 { return float64(speed) * 1e6 / 8 }

// numberLabels replaces the values of every label with numbers. Hosts without a label form one group.
func numberLabels(hosts []Host) [][]int {
	var all [][]int
	for _, label := range crossingLabels {
		ids := map[string]int{}
		numbers := make([]int, len(hosts))
		for i, h := range hosts {
			value := h.Labels[label]
			if _, ok := ids[value]; !ok {
				ids[value] = len(ids)
			}
			numbers[i] = ids[value]
		}
		if len(ids) > 1 {
			all = append(all, numbers)
		}
	}
	return all
}

// over reports whether the result is no longer needed. Searches then end soon, with an arbitrary ring.
func (p *problem) over() bool { return p.ctx.Err() != nil }

// listed returns n indices in order, such as the ring in the order of the host list.
func listed(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// solve finds the highest bandwidth that all edges of some ring reach, and the cheapest of the rings that come close to
// it.
func (p *problem) solve() []int {
	if p.n > exactLimit {
		return p.solveMany()
	}
	levels := p.levels()
	reached := levels[sort.Search(len(levels)-1, func(i int) bool { // every ring reaches the last level
		_, ok := p.exact(levels[i])
		return ok
	})]
	order, _ := p.exact(reached * (1 - tolerance))
	// Take the highest level within the tolerance that costs no more crossings.
	levels = slices.DeleteFunc(levels, func(level float64) bool { return level < reached*(1-tolerance) || level > reached })
	crossings := p.crossings(order)
	at := sort.Search(len(levels), func(i int) bool {
		better, ok := p.exact(levels[i])
		return ok && p.crossings(better) <= crossings
	})
	if at < len(levels) {
		order, _ = p.exact(levels[at])
	}
	return order
}

// solveMany is solve for too many hosts to consider all rings.
func (p *problem) solveMany() []int {
	lowest, top := p.bounds()
	s := newSearch(p)
	if lowest >= top { // all alike
		order, _ := s.ring(top)
		return order
	}
	var best []int
	for squared := range softest {
		order, _ := s.ringBySoftCost(top, squared)
		if best == nil || p.better(order, best) {
			best = order
		}
	}
	return s.raise(best, top)
}

// better reports whether ring a has a faster slowest edge than b and no more crossings.
func (p *problem) better(a, b []int) bool {
	return p.slowest(a) > p.slowest(b) && p.crossings(a) <= p.crossings(b)
}

// slowest returns the bandwidth of a ring's slowest edge.
func (p *problem) slowest(order []int) float64 {
	low := math.Inf(1)
	for i, from := range order {
		low = min(low, p.edges[from*p.n+order[(i+1)%len(order)]].speed)
	}
	return low
}

// crossings returns how many borders a ring crosses.
func (p *problem) crossings(order []int) (sum int64) {
	for i, from := range order {
		sum += p.edges[from*p.n+order[(i+1)%len(order)]].cost / crossing
	}
	return sum
}

// bounds returns the lowest bandwidth of all edges, and an upper bound for any ring: the least, over all hosts, of the
// best edge into or out of the host, or of the best path to it.
func (p *problem) bounds() (lowest, top float64) {
	in := make([]float64, p.n)
	lowest, top = math.Inf(1), math.Inf(1)
	for i := range p.n {
		out := 0.0
		for j, e := range p.edges[i*p.n : (i+1)*p.n] {
			if i == j {
				continue
			}
			speed := e.speed
			if speed < lowest {
				lowest = speed
			}
			if speed > out {
				out = speed
			}
			if speed > in[j] {
				in[j] = speed
			}
		}
		top = min(top, out)
	}
	return lowest, p.widest(min(top, slices.Min(in)))
}

// widest returns the bandwidth of the widest path from host 0 to the host that is hardest to reach, or at least limit.
// A ring contains such a path to every host. Without this bound the search would aim too high where racks are fast
// inside, and find rings a fiftieth slower.
func (p *problem) widest(limit float64) float64 {
	width, done := make([]float64, p.n), make([]bool, p.n)
	width[0] = limit
	narrow := listed(p.n)[1:] // hosts without a path as wide as the limit: soon few
	for len(narrow) > 0 {
		from := -1
		for i, w := range width {
			if !done[i] && (from < 0 || w > width[from]) {
				from = i
			}
		}
		done[from], limit = true, min(limit, width[from])
		row := p.edges[from*p.n : (from+1)*p.n]
		for _, to := range narrow {
			width[to] = max(width[to], min(width[from], row[to].speed))
		}
		narrow = slices.DeleteFunc(narrow, func(host int) bool { return width[host] >= limit })
	}
	return limit
}

// levels returns the possible bandwidths of a ring's slowest edge, best first.
func (p *problem) levels() []float64 {
	_, top := p.bounds()
	var levels []float64
	for at, e := range p.edges {
		if at%(p.n+1) != 0 && e.speed <= top { // not the diagonal
			levels = append(levels, e.speed)
		}
	}
	slices.Sort(levels)
	slices.Reverse(levels)
	return slices.Compact(levels)
}
