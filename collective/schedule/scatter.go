package schedule

// Scatter appends the steps of a ring reduce-scatter into blocks of any size, any number of them per
// position: Gather with the arrows turned around. The partial result of a block starts at its owner's right
// neighbour and goes once around; every position in between adds its contribution, the owner last. Every position
// sends and receives what is not its own once, the least possible.
//
// The receives come first, in the order of blocks, then the sends.
func Scatter(dst []Step, hosts, self int, blocks []Block) []Step {
	if hosts < 2 {
		return dst
	}
	next, prev := mod(self+1, hosts), mod(self-1, hosts)
	for _, b := range blocks {
		switch b.Owner {
		case prev: // starts here
		case self:
			dst = append(dst, Step{Do: Finish, Peer: prev, After: -1, Lo: b.Lo, Hi: b.Hi})
		default:
			dst = append(dst, Step{Do: Add, Peer: prev, After: -1, Lo: b.Lo, Hi: b.Hi})
		}
	}
	var mine, theirs int // blocks before this one that start here, at the next position
	for i, b := range blocks {
		s := Step{Do: Send, Peer: next, Tag: uint16(i - theirs), After: i - mine, Lo: b.Lo, Hi: b.Hi}
		switch b.Owner {
		case self: // ends here, and starts at the next position
			theirs++
			continue
		case prev:
			s.Do, s.After = Contribute, -1
			mine++
		}
		dst = append(dst, s)
	}
	return dst
}
