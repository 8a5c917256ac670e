package collective

import (
	"gorun/collective/link"
	"gorun/collective/schedule"
)

// doubling is an allreduce by recursive doubling: hosts exchange all they have, at growing distance. What is sent
// is added to afterwards, so segments are so short that the link copies them.
type doubling struct{ partials }

var doublings = newStrategies[doubling](func(o *op, _ *Request) bool { return o.by == schedule.ByRecursiveDoubling })

func (s *doubling) layout(o *op, r *Request) {
	s.begin(o, r)
	o.run.cut = doublingCut(o.run.cut)
	o.route()
}

func doublingCut(cut int64) int64 { return min(cut, schedule.DoublingSegment, link.CopyLimit) }
