package collective

import "gorun/collective/schedule"

// star is an allreduce that only tests know: all hosts send their contribution to the first one, which adds them and
// sends everybody the result. It shows what a new algorithm is: a file like this one, and a line in the registry.
type star struct {
	base
	plans
	slots slots
}

var stars = newStrategies[star](func(o *op, r *Request) bool { return o.by != schedule.Auto && !isCoded(o, r) })

// PreferStar is the line in the registry, of one engine.
func PreferStar(e *Engine) {
	mine := *e.strategies
	mine[Allreduce] = append([]*strategyPool{stars}, mine[Allreduce]...)
	e.strategies = &mine
}

// layout lays out what the center receives and sends, or what one of the others does.
func (s *star) layout(o *op, r *Request) {
	s.o, s.plans = o, plansOf(o, r)
	o.acc, o.holder = o.outs[0], o.own.first()
	o.copies = append(o.copies, o.outs[1:]...)
	run, self, hosts := &o.run, o.group.self, len(o.group.hosts)
	if self > 0 {
		run.steps = append(run.steps,
			schedule.Step{Do: schedule.Contribute, Peer: 0, Tag: uint16(self - 1), After: -1, Hi: o.size},
			schedule.Step{Do: schedule.Take, Peer: 0, After: -1, Hi: o.size})
	} else {
		o.mixed = true
		for pos := 1; pos < hosts; pos++ {
			run.steps = append(run.steps, schedule.Step{Do: schedule.Collect, Peer: pos, After: -1, Hi: o.size})
		}
		for pos := 1; pos < hosts; pos++ {
			run.steps = append(run.steps, schedule.Step{Do: schedule.Send, Peer: pos, Tag: 1, After: -1, Hi: o.size})
		}
	}
	s.slots.open(o)
}

func (s *star) payload(step int, lo, hi int64) []byte {
	if s.o.run.steps[step].Do == schedule.Send {
		return s.o.acc[lo:hi]
	}
	return s.slots.of(s.o, s.o.group.self, lo, hi)
}

// make computes what this host contributes.
func (s *star) make(_ int, lo, hi int64) {
	s.o.contribute(&s.mid, s.slots.of(s.o, s.o.group.self, lo, hi), lo, hi)
}

func (s *star) target(step int, lo, hi int64) []byte {
	if s.o.takes(step) {
		return s.o.acc[lo:hi:hi]
	}
	return s.slots.of(s.o, s.o.run.steps[step].Peer, lo, hi)
}

func (s *star) deliver(step int, lo, hi int64, payload []byte) {
	if s.o.takes(step) {
		s.base.deliver(step, lo, hi, payload)
		return
	}
	place(s.target(step, lo, hi), payload)
	s.count(lo, hi)
}

func (s *star) follow(int, int64) {}

// local is the contribution of the center.
func (s *star) local(lo, hi int64) {
	for cut := s.o.run.cut; lo < hi; lo += cut {
		end := min(lo+cut, hi)
		s.make(0, lo, end)
		s.count(lo, end)
	}
}

// count adds the contributions to a segment once all are there, and sends the result.
func (s *star) count(lo, hi int64) {
	o := s.o
	if !s.slots.last(o, lo) {
		return
	}
	v := o.engine.view()
	for pos := range o.group.hosts {
		v.src = append(v.src, s.slots.of(o, pos, lo, hi))
	}
	v.dst = cut(v.dst, o.outs, lo, hi)
	s.combine.Reduce(v.dst, nil, v.src)
	o.engine.views.Put(v)
	for i := range o.run.steps {
		if o.run.steps[i].Do == schedule.Send {
			o.queue(i, lo)
		}
	}
}
