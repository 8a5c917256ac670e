package schedule

import "math/bits"

// Cost says what a message costs between two hosts.
type Cost struct {
	Alpha float64 // seconds per message, from one engine to the other
	Beta  float64 // seconds per byte
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
	return c.Alpha + float64(hosts-1)*float64(n)*c.Beta
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

// Gather is the time of a ring allgather of n bytes in all.
func (c Cost) Gather(n int64, hosts int) float64 {
	h := float64(hosts)
	return (h - 1) * (c.Alpha + float64(n)/h*c.Beta)
}
