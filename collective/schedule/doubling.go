package schedule

import "math/bits"

// Recursive algorithms need a power of two of positions: the core. Of the first 2×(hosts-core) positions
// every odd one is an extra: it sends its contribution to its left neighbour before the rounds, and gets the result
// after them.

// core is a position's place among the positions that take part in the rounds.
type core struct {
	hosts  int
	rounds int // log2 of the size of the core
	extras int
}

func coreOf(hosts int) core {
	rounds := bits.Len(uint(hosts)) - 1
	return core{hosts: hosts, rounds: rounds, extras: hosts - 1<<rounds}
}

// extra reports whether a position only sends its contribution.
func (c core) extra(p int) bool { return p < 2*c.extras && p%2 == 1 }

// folded is 1 for a position that stands for an extra too, and so has one step more before the rounds.
func (c core) folded(p int) int {
	if p < 2*c.extras && p%2 == 0 {
		return 1
	}
	return 0
}

// place returns the number of a position in the core.
func (c core) place(p int) int {
	if p < 2*c.extras {
		return p / 2
	}
	return p - c.extras
}

// position is the inverse of place.
func (c core) position(place int) int {
	if place < c.extras {
		return 2 * place
	}
	return place + c.extras
}

// outside appends the steps of an extra.
func (c core) outside(dst []Step, self int, size int64) []Step {
	return append(dst,
		Step{Do: Contribute, Peer: self - 1, Tag: 0, After: -1, Hi: size},
		Step{Do: Take, Peer: self - 1, After: -1, Hi: size})
}

// DoublingSegment is the longest message of recursive doubling.
const DoublingSegment = 16 << 10

// RecursiveDoubling appends the steps of an allreduce in which positions at distance 1, 2, 4 … exchange all
// they have: log2(hosts) messages one after the other, and two more if hosts is no power of two. It suits
// small buffers of many hosts.
//
// A position adds to what it still sends: the engine must have copied a segment, of DoublingSegment at most, before
// anything is added.
func RecursiveDoubling(dst []Step, hosts, self int, size int64) []Step {
	if hosts < 2 {
		return dst
	}
	c := coreOf(hosts)
	if c.extra(self) {
		return c.outside(dst, self, size)
	}
	folded, have := c.folded(self), 0 // have: the step that left behind what this position has
	if folded == 1 {
		dst = append(dst, Step{Do: Add, Peer: self + 1, After: -1, Hi: size})
	}
	for k := range c.rounds {
		peer := c.position(c.place(self) ^ 1<<k)
		out := Step{Do: Send, Peer: peer, Tag: uint16(c.folded(peer) + 2*k + 1), After: have, Hi: size}
		in := Step{Do: Merge, Peer: peer, After: have, Hi: size}
		if k == 0 && folded == 0 {
			out.Do, out.After = Contribute, -1
		}
		if k == c.rounds-1 {
			in.Do = Conclude
		}
		dst = append(dst, out, in)
		have = folded + 2*k + 1
	}
	if folded == 1 {
		dst = append(dst, Step{Do: Send, Peer: self + 1, Tag: 1, After: have, Hi: size})
	}
	return dst
}

// Rabenseifner appends the steps of an allreduce in which positions at distance 1, 2, 4 … exchange halves of
// what they are left with and add them up, until each has a share of the result, and then go back and
// exchange results: the bytes of a ring, within twice log2(hosts) messages one after the other. If hosts is
// no power of two the whole buffer travels twice more.
//
// Every share must have a byte: size must be at least hosts × Align.
func Rabenseifner(dst []Step, hosts, self int, size int64) []Step {
	if hosts < 2 {
		return dst
	}
	c := coreOf(hosts)
	if c.extra(self) {
		return c.outside(dst, self, size)
	}
	folded, have := c.folded(self), -1
	if folded == 1 {
		dst = append(dst, Step{Do: Add, Peer: self + 1, After: -1, Hi: size})
		have = 0
	}
	place := c.place(self)
	cuts := make([]int64, 0, 64) // lo and hi of what was left before each round
	lo, hi := int64(0), size
	for k := range c.rounds {
		peer := c.position(place ^ 1<<k)
		cuts = append(cuts, lo, hi)
		mid := lo + (hi-lo+2*Align-1)/(2*Align)*Align
		out := Step{Do: Send, Peer: peer, Tag: uint16(c.folded(peer) + 2*k + 1), After: have, Lo: mid, Hi: hi}
		in := Step{Do: Merge, Peer: peer, After: have, Lo: lo, Hi: mid}
		if place>>k&1 == 1 {
			out.Lo, out.Hi, in.Lo, in.Hi = in.Lo, in.Hi, out.Lo, out.Hi
		}
		lo, hi = in.Lo, in.Hi
		last := k == c.rounds-1
		switch {
		case have < 0 && last:
			out.Do, in.Do = Contribute, Finish
		case have < 0:
			out.Do, in.Do = Contribute, Add
		case last:
			in.Do = Conclude
		}
		dst = append(dst, out, in)
		have = folded + 2*k + 1
	}
	for k := c.rounds - 1; k >= 0; k-- {
		peer := c.position(place ^ 1<<k)
		from, to := cuts[2*k], cuts[2*k+1]
		at := 2 * (2*c.rounds - 1 - k) // of the steps of this round in a list that is not folded
		in := Step{Do: Take, Peer: peer, After: have, Lo: from, Hi: lo}
		if lo == from {
			in.Lo, in.Hi = hi, to
		}
		dst = append(dst, Step{Do: Send, Peer: peer, Tag: uint16(c.folded(peer) + at + 1), After: have, Lo: lo, Hi: hi}, in)
		lo, hi = from, to
		have = folded + at + 1
	}
	if folded == 1 {
		dst = append(dst, Step{Do: Send, Peer: self + 1, Tag: 1, After: have, Hi: size})
	}
	return dst
}
