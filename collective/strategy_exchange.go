package collective

import (
	"fmt"
	"math"
	"slices"

	"gorun/collective/schedule"
)

// exchange is an alltoall: it gives every rank what all ranks have for it, in the order of ranks. A gather and a
// scatter are alltoalls in which all rows go to the root, or come from it.
//
// Rows go straight from the input of their sender, whose ranks hear of the end only when the peers have everything,
// to their place in the result. Nothing is passed on.
type exchange struct {
	base
	starts []int64 // where what a rank sends is in acc, by rank of the group and local receiver
	source []int   // by step: the local rank that sends
	offset []int64 // by step: where its bytes are in the sender's input, or in acc
}

var exchanges = newStrategies[exchange](always)

func (s *exchange) layout(o *op, r *Request) {
	s.o = o
	g, ranks := o.group, len(o.own.reqs)
	s.setRows()
	s.starts = resize(s.starts, len(g.ranks)*ranks)
	if o.mixed = len(g.hosts) > 1; !s.place(r) || !o.provide(o.size) || len(g.hosts) == 1 {
		return
	}
	o.holder = allRanks
	bytes, _ := BytesOf(r.Shape[1:], r.Type)
	row := int64(bytes)
	s.offset, s.source = s.offset[:0], s.source[:0]
	o.run.steps = schedule.Exchange(o.run.steps, g.self, g.owned, func(from, to int) int64 {
		a, b := g.seats[from], g.seats[to]
		if a.pos != g.self {
			s.offset, s.source = append(s.offset, s.starts[from*ranks+b.index]), append(s.source, 0)
			return int64(o.results.list[b.index].Rows[from]) * row
		}
		lo := o.own.rowsBefore(a.index, to) * row
		s.offset, s.source = append(s.offset, lo), append(s.source, a.index)
		return int64(o.own.reqs[a.index].Splits[to]) * row
	})
}

// place gives every local rank its part of the result memory, and sets its size. It returns false if that is larger
// than any memory.
func (s *exchange) place(r *Request) bool {
	o, g := s.o, s.o.group
	bytes, _ := BytesOf(r.Shape[1:], r.Type)
	row := int64(bytes)
	o.size = 0
	for _, rank := range g.owned[g.self] {
		seat := g.seats[rank]
		rows, lo, total := o.results.list[seat.index].Rows, o.size, 0
		for i, n := range rows {
			s.starts[i*len(o.own.reqs)+seat.index] = o.size
			if row != 0 && int64(n) > (math.MaxInt64-o.size)/row { // no memory of the senders holds that either
				o.err = &Error{Code: CodeInternal,
					Text: fmt.Sprintf("%s %q: the result does not fit any memory", r.Kind, o.name)}
				o.size = 0
				return false
			}
			o.size += int64(n) * row
			total += n
		}
		o.results.list[seat.index] = Result{Lo: int(lo), Hi: int(o.size),
			Shape: o.results.shape(seat.index, r.Shape, total), Rows: rows}
	}
	return true
}

// setRows sets the rows that each local rank gets of each rank of the group.
func (s *exchange) setRows() {
	o, g := s.o, s.o.group
	n := len(g.ranks)
	list := o.results.list
	o.results.rows = resize(o.results.rows, n*len(list))
	for i := range list {
		list[i].Rows = o.results.rows[i*n : (i+1)*n : (i+1)*n]
	}
	for _, from := range g.owned[g.self] {
		splits := o.own.reqs[g.seats[from].index].Splits
		for _, to := range g.owned[g.self] {
			list[g.seats[to].index].Rows[from] = splits[to]
		}
	}
	for pos := range g.hosts {
		if pos == g.self {
			continue
		}
		v := o.ranks(pos)
		for i := range v.count() {
			rank, _ := v.rank(i)
			from, _ := slices.BinarySearch(g.ranks, rank)
			for _, to := range g.owned[g.self] {
				list[g.seats[to].index].Rows[from] = v.split(i, to)
			}
		}
	}
}

func (s *exchange) payload(step int, lo, hi int64) []byte {
	return s.o.ins[s.source[step]][s.offset[step]+lo : s.offset[step]+hi]
}

func (s *exchange) target(step int, lo, hi int64) []byte {
	lo, hi = lo+s.offset[step], hi+s.offset[step]
	return s.o.acc[lo:hi:hi]
}

func (s *exchange) deliver(step int, lo, hi int64, payload []byte) {
	place(s.target(step, lo, hi), payload)
}

func (s *exchange) follow(int, int64) {}

// local copies what ranks of this host have for each other.
func (s *exchange) local(lo, hi int64) {
	o, g := s.o, s.o.group
	row, _ := BytesOf(o.own.reqs[0].Shape[1:], o.own.reqs[0].Type)
	for _, to := range g.owned[g.self] {
		b := g.seats[to].index
		if r := &o.results.list[b]; int64(r.Hi) <= lo || hi <= int64(r.Lo) {
			continue
		}
		for _, from := range g.owned[g.self] {
			a := g.seats[from].index
			start := s.starts[from*len(o.own.reqs)+b]
			i, j := max(lo, start), min(hi, start+int64(o.own.reqs[a].Splits[to]*row))
			if i < j {
				shift := o.own.rowsBefore(a, to)*int64(row) - start
				copy(o.acc[i:j], o.ins[a][i+shift:j+shift])
			}
		}
	}
}
