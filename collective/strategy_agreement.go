package collective

import "slices"

// Operations that move no data: they are over when all hosts agree on them.

// barrier ends when all ranks have come to it. A RemoveGroup does no more: the negotiation removes the group.
type barrier struct{ base }

var barriers = newStrategies[barrier](always)

func (s *barrier) layout(o *op, _ *Request) { s.o = o }

// groupAddition makes a group (groups.go).
type groupAddition struct{ base }

var groupAdditions = newStrategies[groupAddition](always)

func (s *groupAddition) layout(o *op, r *Request) {
	s.o = o
	o.results.same(int(o.engine.addGroup(o.epoch, slices.Clone(r.Shape))))
}

// join ends when all ranks have joined (join.go). It finds the rank that did so last.
type join struct{ base }

var joins = newStrategies[join](always)

func (s *join) layout(o *op, _ *Request) {
	s.o = o
	last, latest := 0, -1
	o.everyRank(func(rank, stamp int) {
		if stamp > latest || stamp == latest && rank > last {
			last, latest = rank, stamp
		}
	})
	o.results.same(last)
}
