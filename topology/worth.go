package topology

import (
	"cmp"
	"math"
	"slices"
)

// Pair is a directed edge between hosts, by their indices.
type Pair struct{ From, To int }

// fewHosts is the largest number of hosts for which every edge is worth measuring.
const fewHosts = 8

// nearestHosts is, beyond that, how many of a host's nearest neighbours are worth it.
const nearestHosts = 4

// Worth returns the edges whose measurement can change the ring: all edges of a few hosts; of many hosts, the edges to
// the nearest hosts by round-trip time, and the edges of the ring that results without measuring.
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
		return math.Inf(1) // unknown
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

// Rounds distributes pairs over few rounds, with every host in at most one pair of a round: simultaneous measurements
// must not share a host's network.
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
