package schedule

import "math/bits"

// Binomial appends the steps of a reduction along a binomial tree to position 0 and a broadcast of the
// result back along it: each edge of the tree carries the buffer once in each direction, and a segment does
// not wait for the others.
//
// The receives from the children come first, those with the smallest trees before the others; then what goes
// to the parent and comes from it; then the sends to the children, the largest tree first.
func Binomial(dst []Step, hosts, self int, size int64) []Step {
	if hosts < 2 {
		return dst
	}
	count := children(hosts, self)
	for i := range count {
		s := Step{Do: Merge, Peer: self + 1<<i, After: i - 1, Hi: size}
		switch last := self == 0 && i == count-1; {
		case last && i == 0:
			s.Do = Finish
		case last:
			s.Do = Conclude
		case i == 0:
			s.Do = Add
		}
		dst = append(dst, s)
	}
	have := count - 1
	if self != 0 {
		parent := self - self&-self
		up := Step{Do: Send, Peer: parent, Tag: uint16(bits.TrailingZeros(uint(self))), After: have, Hi: size}
		if count == 0 {
			up.Do = Contribute
		}
		dst = append(dst, up, Step{Do: Take, Peer: parent, After: -1, Hi: size})
		have = count + 1
	}
	for i := count - 1; i >= 0; i-- {
		child := self + 1<<i
		dst = append(dst, Step{Do: Send, Peer: child, Tag: uint16(children(hosts, child) + 1), After: have, Hi: size})
	}
	return dst
}

// children returns how many children a position of the tree with root 0 has. They are at distance 1, 2, 4 …
func children(hosts, p int) int {
	n := 0
	for 1<<n < hosts-p && (p == 0 || 1<<n < p&-p) {
		n++
	}
	return n
}
