package collective

import (
	"fmt"
	"math"
	"math/bits"
)

// unfit returns the error of an operation whose result is larger than what a host has memory for, the same on all
// hosts.
func (u *use) unfit() *Error {
	r, g := &u.own.reqs[0], u.group
	if !r.Kind.provides() {
		return nil
	}
	most := u.need(allRanks)
	for pos, h := range g.hosts {
		room := u.room(pos)
		if room == 0 || most <= room {
			continue
		}
		if n := u.need(pos); n > room {
			return &Error{Code: CodeInternal, Text: fmt.Sprintf(
				"%s %q: the result of %d bytes is too large for %s, which has room for %d: submit it in parts", r.Kind, u.name, n, h.Name, room)}
		}
	}
	return nil
}

// need returns the bytes of result memory of an agreed op on the host at a position, or a bound for allRanks.
func (u *use) need(pos int) uint64 {
	r := &u.own.reqs[0]
	if !r.Kind.ragged() { // a tensor whose rows are given to ranks
		n, _ := BytesOf(r.Shape, r.Type)
		return uint64(n)
	}
	var rows uint64
	add := func(n int) { rows = min(rows+uint64(n), math.MaxInt64) }
	for from := range u.group.hosts {
		v := u.ranks(from)
		for i := range v.count() {
			if pos == allRanks || r.Kind == Allgather {
				_, n := v.rank(i)
				add(n)
				continue
			}
			for _, to := range u.group.owned[pos] {
				add(v.split(i, to))
			}
		}
	}
	row, _ := BytesOf(r.Shape[1:], r.Type)
	hi, lo := bits.Mul64(rows, uint64(row))
	if hi != 0 {
		return math.MaxUint64
	}
	return lo
}
