package collective

import (
	"fmt"
	"math"
	"slices"

	"gorun/collective/schedule"
)

// allgather gives every rank the rows of all ranks, in the order of ranks. They may bring different numbers of rows.
type allgather struct {
	base
	blocks []schedule.Block // by rank of the group
	starts []int64          // by local rank: where its rows are in the result
	source []int            // by step: the local rank whose rows a Contribute step sends
}

var allgathers = newStrategies[allgather](always)

func (s *allgather) layout(o *op, _ *Request) {
	s.o = o
	g := o.group
	shape := o.results.shape(0, o.own.reqs[0].Shape, 0)
	row, _ := BytesOf(shape[1:], o.own.reqs[0].Type)
	rows := s.rowsByRank()
	s.blocks, o.size = s.blocks[:0], 0
	for i, seat := range g.seats {
		n := int64(rows[i]) * int64(row)
		if row != 0 && (int64(rows[i]) > math.MaxInt64/int64(row) || o.size > math.MaxInt64-n) ||
			rows[i] > math.MaxInt-shape[0] {
			o.err = &Error{Code: CodeInternal,
				Text: fmt.Sprintf("allgather %q: the result does not fit any memory", o.name)}
			o.size = 0
			return
		}
		s.blocks = append(s.blocks, schedule.Block{Owner: seat.pos, Lo: o.size, Hi: o.size + n})
		o.size += n
		shape[0] += rows[i]
	}
	s.starts = resize(s.starts, len(o.own.reqs))
	for i, seat := range g.seats {
		if seat.pos == g.self {
			s.starts[seat.index] = s.blocks[i].Lo
		}
	}
	if !o.provide(o.size) {
		return
	}
	for i := range o.results.list {
		o.results.list[i] = Result{Hi: int(o.size), Shape: shape, Rows: rows}
	}
	run := &o.run
	run.steps = schedule.Gather(run.steps, len(g.hosts), g.self, s.blocks)
	s.source = resize(s.source, len(run.steps))
	for i := range run.steps {
		if step := &run.steps[i]; step.Do == schedule.Contribute {
			// Empty blocks may share a start, but have no segments.
			s.source[i] = s.ownerOf(step.Lo, step.Hi)
		}
	}
}

// rowsByRank returns how many rows each rank of the group contributes.
func (s *allgather) rowsByRank() []int {
	o, g := s.o, s.o.group
	rows := resize(o.results.rows, len(g.ranks))
	o.results.rows = rows
	o.everyRank(func(rank, n int) {
		i, _ := slices.BinarySearch(g.ranks, rank)
		rows[i] = n
	})
	return rows
}

// ownerOf returns the local rank whose block is [lo, hi).
func (s *allgather) ownerOf(lo, hi int64) int {
	for i, in := range s.o.ins {
		if s.starts[i] == lo && int64(len(in)) == hi-lo {
			return i
		}
	}
	return 0
}

func (s *allgather) make(step int, lo, hi int64) {
	rank := s.source[step]
	at := s.starts[rank]
	copy(s.o.acc[lo:hi], s.o.ins[rank][lo-at:hi-at])
}

func (s *allgather) local(lo, hi int64) {
	for i, in := range s.o.ins {
		start := s.starts[i]
		from, to := max(lo, start), min(hi, start+int64(len(in)))
		if from < to {
			copy(s.o.acc[from:to], in[from-start:to-start])
		}
	}
}
