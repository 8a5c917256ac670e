package schedule

import "math/bits"

// Cost is what a message costs between two hosts.
type Cost struct {
	Alpha float64 // seconds per message, from one engine to the other
	Beta  float64 // seconds per byte
	Gap   float64 // seconds between two messages that a host sends, however small
}

// Allreduce is the time of an allreduce of n bytes.
func (c Cost) Allreduce(a Algorithm, n int64, hosts int) float64 {
	return algorithms[a.Fit(hosts, n)].time(c, n, hosts)
}

// worth is how much less time than a ring an algorithm must take to be chosen. The formulas are not more
// exact than that, and a ring only uses the edges that were chosen for it.
const worth = 0.95

// Choose returns the algorithm that takes the least time for an allreduce of n bytes. A direct exchange
// needs memory for every position's contribution, and is not chosen for more than directMax bytes.
func (c Cost) Choose(n int64, hosts int, directMax int64) Algorithm {
	best, least := ByRing, worth*c.Ring(n, hosts)
	for a := Auto + 1; a.Valid(); a++ {
		if a == ByRing || a == ByDirect && n > directMax || a.Fit(hosts, n) != a {
			continue
		}
		if t := c.Allreduce(a, n, hosts); t < least {
			best, least = a, t
		}
	}
	return best
}

// Crossover is the size where another algorithm becomes the cheapest.
type Crossover struct {
	From int64 // bytes
	By   Algorithm
}

// Crossovers returns what Choose returns for all sizes up to max bytes, to a sixteenth of a size.
func (c Cost) Crossovers(hosts int, directMax, max int64) []Crossover {
	all := []Crossover{{0, c.Choose(1, hosts, directMax)}}
	for n, step := int64(1), int64(1); n <= max; n += step {
		if a := c.Choose(n, hosts, directMax); a != all[len(all)-1].By {
			all = append(all, Crossover{n, a})
		}
		if n >= 32*step {
			step *= 2
		}
	}
	return all
}

// Ring is the time of a ring allreduce of n bytes.
func (c Cost) Ring(n int64, hosts int) float64 {
	h := float64(hosts)
	return 2 * (h - 1) * (c.Alpha + float64(n)/h*c.Beta)
}

// Direct is the time of a direct exchange of n bytes: the messages travel together, but share the wire.
func (c Cost) Direct(n int64, hosts int) float64 {
	if hosts < 2 {
		return 0
	}
	wire := float64(n) * c.Beta
	return c.Alpha + float64(hosts-2)*max(wire, c.Gap) + wire
}

// busy is how much of the time of a message a host spends on it, and cannot spend on the next one: system calls and
// hand-overs. Between two hosts that share 2 CPUs recursive doubling of 1 MiB takes some 10 µs longer than a ring for
// each of its messages, where one message takes 30 to 40 µs.
const busy = 0.3

// RecursiveDoubling is the time of an allreduce of n bytes by recursive doubling.
func (c Cost) RecursiveDoubling(n int64, hosts int) float64 {
	if hosts < 2 {
		return 0
	}
	k := coreOf(hosts)
	more := max(float64(n)/DoublingSegment-1, 0) * max(busy*c.Alpha, c.Gap)
	return float64(k.rounds+k.outsideRounds()) * (c.Alpha + more + float64(n)*c.Beta)
}

// Rabenseifner is the time of an allreduce of n bytes by Rabenseifner's algorithm.
func (c Cost) Rabenseifner(n int64, hosts int) float64 {
	if hosts < 2 {
		return 0
	}
	k := coreOf(hosts)
	share := float64(n) / float64(int(1)<<k.rounds)
	return 2*(float64(k.rounds)*c.Alpha+(float64(n)-share)*c.Beta) +
		float64(k.outsideRounds())*(c.Alpha+float64(n)*c.Beta)
}

// outsideRounds returns how many messages one after the other the extras cost.
func (c core) outsideRounds() int {
	if c.extras > 0 {
		return 2
	}
	return 0
}

// Chain is the time of a broadcast of n bytes in segments of the given size along a chain.
func (c Cost) Chain(n, segment int64, hosts int) float64 {
	if hosts < 2 {
		return 0
	}
	count := max((n+segment-1)/segment, 1)
	return float64(int64(hosts-2)+count) * (c.Alpha + float64(min(n, segment))*c.Beta)
}

// Tree is the time of a broadcast of n bytes along a binomial tree.
func (c Cost) Tree(n int64, hosts int) float64 {
	if hosts < 2 {
		return 0
	}
	return float64(bits.Len(uint(hosts-1))) * (c.Alpha + float64(n)*c.Beta)
}
