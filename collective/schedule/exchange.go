package schedule

// Exchange appends the steps in which every rank sends a piece of its own to every rank of another position.
// owned are the ranks of each position, and piece the bytes from one rank to another; it is
// asked once for each step, in the order of steps. A step's bytes count from the start of its piece. All of it
// is under way at once, and no byte moves twice.
//
// The receives come first, by position, sender and receiver, then the sends.
func Exchange(dst []Step, self int, owned [][]int, piece func(from, to int) int64) []Step {
	hosts, mine := len(owned), owned[self]
	for p, theirs := range owned {
		if p == self {
			continue
		}
		for _, from := range theirs {
			for _, to := range mine {
				dst = append(dst, Step{Do: Take, Peer: p, After: -1, Hi: piece(from, to)})
			}
		}
	}
	for i := 1; i < hosts; i++ {
		// Each position starts at its own right neighbour, so that no receiver is hit by all at once.
		peer := mod(self+i, hosts)
		theirs, before := owned[peer], 0 // before: the senders whose steps come first there
		for p, ranks := range owned[:self] {
			if p != peer {
				before += len(ranks)
			}
		}
		for i, from := range mine {
			for k, to := range theirs {
				tag := uint16((before+i)*len(theirs) + k)
				dst = append(dst, Step{Do: Contribute, Peer: peer, Tag: tag, After: -1, Hi: piece(from, to)})
			}
		}
	}
	return dst
}
