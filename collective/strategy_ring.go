package collective

import (
	"gorun/collective/schedule"
)

// partials adds up partial results on their way through the hosts, along a schedule of package schedule. A
// partial lies in acc; the ranks of a host are added in when it comes through.
type partials struct {
	base
	plans
	asIs bool // the only input of this host is sent as it is
}

// begin prepares memory and arithmetic.
func (s *partials) begin(o *op, r *Request) {
	s.o, s.plans, s.asIs = o, plansOf(o, r), false
	o.acc = o.outs[0]
	o.copies = append(o.copies, o.outs[1:]...)
}

func (s *partials) payload(step int, lo, hi int64) []byte {
	if s.asIs && s.o.run.steps[step].Do == schedule.Contribute {
		return s.o.ins[0][lo:hi]
	}
	return s.o.acc[lo:hi]
}

func (s *partials) make(_ int, lo, hi int64) {
	if !s.asIs {
		s.o.contribute(&s.mid, s.o.acc[lo:hi], lo, hi)
	}
}

func (s *partials) target(step int, lo, hi int64) []byte {
	if s.o.takes(step) {
		return s.o.acc[lo:hi:hi]
	}
	return nil
}

func (s *partials) deliver(step int, lo, hi int64, payload []byte) {
	o := s.o
	do := o.run.steps[step].Do
	if do == schedule.Take {
		s.base.deliver(step, lo, hi, payload)
		return
	}
	v := o.engine.view()
	partial := payload
	if do.Merges() {
		v.src, partial = append(v.src, payload), o.acc[lo:hi]
	} else {
		v.src = cut(v.src, o.ins, lo, hi)
	}
	v.dst = append(v.dst, o.acc[lo:hi])
	plan := &s.mid
	switch do {
	case schedule.Merge:
		plan = &s.join
	case schedule.Finish:
		plan, v.dst = &s.last, cut(v.dst, o.copies, lo, hi)
	case schedule.Conclude:
		plan, v.dst = &s.combine, cut(v.dst, o.copies, lo, hi)
	}
	plan.Reduce(v.dst, partial, v.src)
	o.engine.views.Put(v)
}

// ring is an allreduce whose partials are sent from the memory of a rank: along one ring or several, and by all
// other schedules that send a byte only after it has its last value there: halving and doubling.
type ring struct{ partials }

var rings = newStrategies[ring](always)

func (s *ring) layout(o *op, r *Request) {
	s.begin(o, r)
	o.route()
	o.holder = o.own.first()
	s.asIs = len(o.ins) == 1 && s.mid.Pre == 1
}
