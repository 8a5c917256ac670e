package schedule

// Ring appends the steps of a ring allreduce: hosts-1 steps in which each chunk goes once around and
// grows, then hosts-1 in which the finished chunk goes around. Every position sends and receives
// 2(hosts-1)/hosts of the buffer, the least possible, and talks to two neighbours only.
//
// Transfer t is step 2t at its sender and step 2t+1 at its receiver.
func Ring(dst []Step, hosts, self int, size int64) []Step {
	if hosts < 2 {
		return dst
	}
	next, prev := mod(self+1, hosts), mod(self-1, hosts)
	for t := range 2 * (hosts - 1) {
		out, in := Send, Add
		switch {
		case t == 0:
			out = Contribute
		case t >= hosts-1:
			in = Take
		}
		if t == hosts-2 {
			in = Finish
		}
		// In the second half the chunks move on by one: transfer hosts-1 sends what hosts-2 finished.
		lo, hi := chunk(mod(self-t, hosts), hosts, size)
		dst = append(dst, Step{Do: out, Peer: next, Tag: uint16(2*t + 1), After: max(2*t-1, -1), Lo: lo, Hi: hi})
		lo, hi = chunk(mod(self-t-1, hosts), hosts, size)
		dst = append(dst, Step{Do: in, Peer: prev, After: -1, Lo: lo, Hi: hi})
	}
	return dst
}

// Direct appends the steps of an exchange in which every position sends its whole contribution to all others.
// It takes one message's time where the ring takes 2(hosts-1), and moves hosts/2 times as much.
//
// The sends come first, then the receives in the order of positions.
func Direct(dst []Step, hosts, self int, size int64) []Step {
	base := hosts - 1
	for i := 1; i < hosts; i++ {
		// Each position starts at its own right neighbour, so that no receiver is hit by all at once.
		peer := mod(self+i, hosts)
		s := Step{Do: Send, Peer: peer, Tag: uint16(base + skip(self, peer)), After: 0, Hi: size}
		if i == 1 {
			s.Do, s.After = Contribute, -1
		}
		dst = append(dst, s)
	}
	for peer := range hosts {
		if peer != self {
			dst = append(dst, Step{Do: Collect, Peer: peer, After: -1, Hi: size})
		}
	}
	return dst
}

// skip returns the place of position p in a list of all positions but one.
func skip(p, without int) int {
	if p > without {
		return p - 1
	}
	return p
}
