package topology

import "math"

// exact returns the cheapest ring whose edges all have at least the given bandwidth, of equal ones the first in the
// order of the host list. It fails if there is none.
//
// It is Held and Karp's dynamic programme: for every host v and every set of hosts still to visit, the cheapest path
// from v through all of them back to host 0. Hosts 1 to n-1 are the bits of a set.
func (p *problem) exact(floor float64) (order []int, ok bool) {
	n, others := p.n, p.n-1
	const never = math.MaxInt64
	edge := func(i, j int) int64 {
		if p.edges[i*n+j].speed < floor {
			return never
		}
		return p.edges[i*n+j].cost
	}
	add := func(x, y int64) int64 {
		if x == never || y == never {
			return never
		}
		return x + y
	}
	rest := make([]int64, n<<others) // indexed by set×n+v
	for set := range 1 << others {
		for v := range n {
			if v > 0 && set>>(v-1)&1 == 1 {
				continue
			}
			best := int64(never)
			if set == 0 {
				best = edge(v, 0)
			}
			for u := 1; u < n; u++ {
				if bit := 1 << (u - 1); set&bit != 0 {
					best = min(best, add(edge(v, u), rest[(set&^bit)*n+u]))
				}
			}
			rest[set*n+v] = best
		}
	}
	set, v := 1<<others-1, 0
	if rest[set*n] == never {
		return nil, false
	}
	order = append(order, 0)
	for set != 0 {
		for u := 1; u < n; u++ {
			bit := 1 << (u - 1)
			if set&bit != 0 && add(edge(v, u), rest[(set&^bit)*n+u]) == rest[set*n+v] {
				order, set, v = append(order, u), set&^bit, u
				break
			}
		}
	}
	return order, true
}
