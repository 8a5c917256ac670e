package topology

import (
	"cmp"
	"math"
	"slices"
)

// Pair is a directed edge between hosts, by their indices.
type Pair struct{ From, To int }

// fewHosts is up to how many hosts every edge is worth a measurement.
const fewHosts = 8

// nearestHosts is how many of a host's nearest others are worth it, beyond.
const nearestHosts = 4

// Worth returns the edges on which a measurement of the bandwidth can change the ring: all of a few hosts;
// of many, those to the hosts that are nearest by round-trip time, and those of the ring that there is
// without it.
func Worth(hosts []Host, edges []Edge) []Pair {
	n := len(hosts)
	if n < 2 {
		return nil
	}
	p := newProblem(hosts, edges)
	near := func(from, to int) float64 {
		if rtt := p.rtt[from*n+to]; rtt > 0 {
			return rtt
		}
		return math.Inf(1) // nobody knows
	}
	chosen := map[Pair]bool{}
	for from := range n {
		var others []int
		for k := 1; k < n; k++ {
			others = append(others, (from+k)%n)
		}
		if n > fewHosts {
			slices.SortStableFunc(others, func(a, b int) int { return cmp.Compare(near(from, a), near(from, b)) })
			others = others[:nearestHosts]
		}
		for _, to := range others {
			chosen[Pair{from, to}] = true
		}
	}
	if ring := Order(hosts, edges).Order; n > fewHosts {
		for i, from := range ring {
			chosen[Pair{from, ring[(i+1)%n]}] = true
		}
	}
	var pairs []Pair
	for pair := range chosen {
		pairs = append(pairs, pair)
	}
	slices.SortFunc(pairs, func(a, b Pair) int { return cmp.Or(a.From-b.From, a.To-b.To) })
	return pairs
}

// Rounds spreads pairs over as few rounds as is easily done, so that in a round every host is in one pair
// at most: measurements at the same time must not share a host's network.
func Rounds(pairs []Pair) [][]Pair {
	var rounds [][]Pair
	for left := slices.Clone(pairs); len(left) > 0; {
		busy := map[int]bool{}
		var round, later []Pair
		for _, pair := range left {
			if busy[pair.From] || busy[pair.To] {
				later = append(later, pair)
				continue
			}
			busy[pair.From], busy[pair.To] = true, true
			round = append(round, pair)
		}
		rounds, left = append(rounds, round), later
	}
	return rounds
}
