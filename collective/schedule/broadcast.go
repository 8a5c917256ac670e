package schedule

// Chain appends the steps of a broadcast from neighbour to neighbour. Cut into segments it moves the
// buffer once over every edge at the same time: which suits large buffers.
//
// The receive is step 0 everywhere but at the root.
func Chain(dst []Step, hosts, self, root int, size int64) []Step {
	place := mod(self-root, hosts)
	send := Step{Do: Send, Peer: mod(self+1, hosts), Hi: size}
	if place == 0 {
		send.Do, send.After = Contribute, -1
	} else {
		dst = append(dst, Step{Do: Take, Peer: mod(self-1, hosts), After: -1, Hi: size})
	}
	if place == hosts-1 {
		return dst
	}
	return append(dst, send)
}

// Tree appends the steps of a broadcast along a binomial tree: log2(hosts) messages one after the
// other, which suits small buffers.
//
// The receive is step 0 everywhere but at the root; children with the deepest trees come first.
func Tree(dst []Step, hosts, self, root int, size int64) []Step {
	place := mod(self-root, hosts)
	span := 1 // of the positions below this one, counted from the root: [place, place+span)
	for span < hosts && place&span == 0 {
		span <<= 1
	}
	first := Step{Do: Contribute, After: -1, Hi: size}
	if place != 0 {
		dst = append(dst, Step{Do: Take, Peer: mod(root+place-span, hosts), After: -1, Hi: size})
		first = Step{Do: Send, Hi: size}
	}
	for half := span >> 1; half > 0; half >>= 1 {
		if place+half >= hosts {
			continue
		}
		first.Peer = mod(root+place+half, hosts)
		dst = append(dst, first)
		first = Step{Do: Send, Hi: size}
	}
	return dst
}
