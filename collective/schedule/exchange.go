package schedule

// Exchange appends the steps in which every rank sends a piece of its own to every rank of another position.
// owners are the positions of the ranks, in their order, and piece the bytes from one rank to another; it is
// asked once for each step, in the order of steps. A step's bytes count from the start of its piece. All of it
// is under way at once, and no byte moves twice.
//
// The receives come first, by sender and then by receiver in the order of ranks, then the sends.
func Exchange(dst []Step, hosts, self int, owners []int, piece func(from, to int) int64) []Step {
	byOwner := make([][]int, hosts)
	for rank, p := range owners {
		byOwner[p] = append(byOwner[p], rank)
	}
	mine := byOwner[self]
	for from, p := range owners {
		if p == self {
			continue
		}
		for _, to := range mine {
			dst = append(dst, Step{Do: Take, Peer: p, After: -1, Hi: piece(from, to)})
		}
	}
	for i := 1; i < hosts; i++ {
		// Each position starts at its own right neighbour, so that no receiver is hit by all at once.
		peer := mod(self+i, hosts)
		theirs, before := byOwner[peer], 0 // before: how many of theirs are before from
		for _, from := range mine {
			for before < len(theirs) && theirs[before] < from {
				before++
			}
			for k, to := range theirs {
				dst = append(dst, Step{Do: Part, Peer: peer, Tag: uint16((from-before)*len(theirs) + k), After: -1, Hi: piece(from, to)})
			}
		}
	}
	return dst
}
