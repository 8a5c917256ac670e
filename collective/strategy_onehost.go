package collective

import (
	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

// oneHost is an allreduce of ranks of one host: every input is read once and every output written once.
type oneHost struct {
	base
	plan kernel.Plan
}

var oneHosts = newStrategies[oneHost](func(o *op, _ *Request) bool { return o.by == schedule.Auto })

func (s *oneHost) layout(o *op, r *Request) { s.o, s.plan = o, resultPlanOf(o, r) }

func (s *oneHost) local(lo, hi int64) {
	o := s.o
	v := o.engine.view()
	v.dst, v.src = cut(v.dst, o.outs, lo, hi), cut(v.src, o.ins, lo, hi)
	s.plan.Reduce(v.dst, nil, v.src)
	o.engine.views.Put(v)
}
