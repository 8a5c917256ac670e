package schedule

// Block is a piece of a buffer that one position contributes to a Gather, or gets of a Scatter.
type Block struct {
	Owner  int
	Lo, Hi int64
}

// Gather appends the steps of a ring allgather of blocks of any size, any number of them per position.
//
// The receives come first, in the order of blocks, then the sends.
func Gather(dst []Step, hosts, self int, blocks []Block) []Step {
	return around(dst, hosts, self, blocks, 0, Take, Take)
}

// Scatter appends the steps of a ring reduce-scatter into blocks: Gather with the arrows turned around. The partial
// result of a block starts at its owner's right neighbour; every position in between adds its contribution, the owner
// last. Every position sends and receives what is not its own once, the least possible.
//
// The receives come first, in the order of blocks, then the sends.
func Scatter(dst []Step, hosts, self int, blocks []Block) []Step {
	return around(dst, hosts, self, blocks, 1, Add, Finish)
}

// around appends the steps in which each block goes once around, from the position that is so many places to the right
// of its owner. others and own are what positions do with a block that they receive.
func around(dst []Step, hosts, self int, blocks []Block, right int, others, own Action) []Step {
	if hosts < 2 {
		return dst
	}
	next, prev := mod(self+1, hosts), mod(self-1, hosts)
	for _, b := range blocks {
		if mod(b.Owner+right, hosts) == self {
			continue
		}
		do := others
		if b.Owner == self {
			do = own
		}
		dst = append(dst, Step{Do: do, Peer: prev, After: -1, Lo: b.Lo, Hi: b.Hi})
	}
	var mine, theirs int // blocks before this one that start here, at the next position
	for i, b := range blocks {
		s := Step{Do: Send, Peer: next, Tag: uint16(i - theirs), After: i - mine, Lo: b.Lo, Hi: b.Hi}
		switch mod(b.Owner+right, hosts) {
		case next: // it ends here
			theirs++
			continue
		case self:
			s.Do, s.After = Contribute, -1
			mine++
		}
		dst = append(dst, s)
	}
	return dst
}
