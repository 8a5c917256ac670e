package schedule

// Block is a piece of a gathered buffer that one position contributes.
type Block struct {
	Owner  int
	Lo, Hi int64
}

// Gather appends the steps of a ring allgather of blocks of any size, any number of them per position.
//
// The receives come first, in the order of blocks, then the sends.
func Gather(dst []Step, hosts, self int, blocks []Block) []Step {
	if hosts < 2 {
		return dst
	}
	next, prev := mod(self+1, hosts), mod(self-1, hosts)
	for _, b := range blocks {
		if b.Owner != self {
			dst = append(dst, Step{Do: Take, Peer: prev, After: -1, Lo: b.Lo, Hi: b.Hi})
		}
	}
	var mine, theirs int // blocks before this one that belong to this position, to the next one
	for i, b := range blocks {
		s := Step{Do: Send, Peer: next, Tag: uint16(i - theirs), After: i - mine, Lo: b.Lo, Hi: b.Hi}
		switch b.Owner {
		case next:
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
