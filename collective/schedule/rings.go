package schedule

import "slices"

// Course is a ring that takes a share of the buffer, beside others.
type Course struct {
	Order []int // positions, each followed by the next
	Share int   // how much of the buffer, beside the shares of the others
}

// Rings appends the steps of ring allreduces that go on at the same time, each over an order of its own and
// about a share of the buffer. They have nothing to do with each other, so that each is as fast as its own
// slowest edge; they end together if shares are as the speeds of these edges.
//
// Every position has the same number of steps for a ring. Tags need 4(hosts-1) numbers for each ring.
func Rings(dst []Step, courses []Course, self int, size int64) []Step {
	total, before := int64(0), int64(0)
	for _, c := range courses {
		total += int64(c.Share)
	}
	units := (size + Align - 1) / Align
	border := func(share int64) int64 { return min(units*share/total*Align, size) }
	for r, c := range courses {
		lo := border(before)
		before += int64(c.Share)
		first := len(dst)
		dst = Ring(dst, len(c.Order), slices.Index(c.Order, self), border(before)-lo)
		for i := first; i < len(dst); i++ {
			s := &dst[i]
			s.Peer, s.Ring = c.Order[s.Peer], uint8(r+1)
			s.Tag += uint16(first)
			if s.After >= 0 {
				s.After += first
			}
			s.Lo, s.Hi = s.Lo+lo, s.Hi+lo
		}
	}
	return dst
}
