package collective

import (
	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

// adasum weighs whole tensors against each other, so it does not go by segments like other reductions. The ranks of
// a host are combined first, in pairs of neighbours, then hosts by recursive doubling (schedule.Ladder), in
// stages. Both ends of an exchange compute the same from the same two vectors in the same order: all ranks get the
// same bits. What is sent stays where it is until the peer has it, so every stage has memory of its own: log₂ of the
// number of hosts times two tensors.
type adasum struct {
	base
	plan   kernel.Plan // type and factors
	stages []schedule.Rung
	next   int // the first stage that is not complete
	busy   bool
	space  []byte // vectors, of stride bytes each
	stride int64
	left   []int32 // per stage: segments that are missing
	places []int64 // per step: where its vector is in space
}

var adasums = newStrategies[adasum](func(_ *op, r *Request) bool { return r.Op == kernel.Adasum })

// layout combines what this host has.
func (s *adasum) layout(o *op, r *Request) {
	s.o, s.plan = o, planOf(o, r)
	run := &o.run
	run.steps, s.stages = schedule.Ladder(run.steps, s.stages[:0], len(o.group.hosts), o.group.self, o.size)
	s.next, s.busy = 0, false
	s.stride = (o.size + schedule.Align - 1) &^ (schedule.Align - 1)
	s.space = resize(s.space, (len(o.ins)+2*len(s.stages))*int(s.stride))
	for i, in := range o.ins {
		s.scaled(r.Pre, in, s.vector(int64(i)*s.stride))
	}
	for n := 1; n < len(o.ins); n *= 2 {
		for i := 0; i+n < len(o.ins); i += 2 * n {
			a, b := s.vector(int64(i)*s.stride), s.vector(int64(i+n)*s.stride)
			kernel.Combine(r.Type, a, a, b)
		}
	}
	s.places = resize(s.places, len(run.steps))
	clear(s.places)
	s.left = resize(s.left, len(s.stages))
	for i := range s.stages {
		stage := &s.stages[i]
		s.places[stage.Receive] = s.received(i)
		if stage.Send >= 0 {
			s.places[stage.Send] = s.combined(i)
		}
		s.left[i] = int32((o.size + run.cut - 1) / run.cut)
	}
	if len(s.stages) == 0 {
		s.scaled(r.Post, s.vector(0), o.outs...)
	}
}

// vector returns the one at a place.
func (s *adasum) vector(at int64) []byte { return s.space[at : at+s.o.size : at+s.o.size] }

// received and combined are where the vector of a stage is received, and what it is combined to.
func (s *adasum) received(stage int) int64 { return int64(len(s.o.ins)+2*stage) * s.stride }
func (s *adasum) combined(stage int) int64 { return s.received(stage) + s.stride }

// scaled writes a multiple of a vector to some places.
func (s *adasum) scaled(by float64, src []byte, to ...[]byte) {
	p := kernel.Plan{Type: s.plan.Type, Op: kernel.Sum, Pre: 1, Post: by}
	v := s.o.engine.view()
	v.dst, v.src = append(v.dst, to...), append(v.src, src)
	p.Reduce(v.dst, nil, v.src)
	s.o.engine.views.Put(v)
}

func (s *adasum) payload(step int, lo, hi int64) []byte { return s.vector(s.places[step])[lo:hi] }

func (s *adasum) target(step int, lo, hi int64) []byte { return s.vector(s.places[step])[lo:hi:hi] }

func (s *adasum) deliver(step int, lo, hi int64, payload []byte) {
	place(s.target(step, lo, hi), payload)
}

// follow counts a segment of a stage, and carries out the stages that are complete.
func (s *adasum) follow(step int, _ int64) {
	o := s.o
	o.mu.Lock()
	for i := range s.stages {
		if s.stages[i].Receive == step {
			s.left[i]--
		}
	}
	for !s.busy && s.next < len(s.stages) && s.left[s.next] == 0 {
		s.busy = true
		o.mu.Unlock()
		s.combine(s.next)
		o.mu.Lock()
		s.busy = false
		s.next++
	}
	o.mu.Unlock()
}

// combine combines what a stage received with what there is, and sends it on.
func (s *adasum) combine(i int) {
	stage := &s.stages[i]
	have := s.vector(0)
	if i > 0 {
		have = s.vector(s.combined(i - 1))
	}
	got, made := s.vector(s.received(i)), s.vector(s.combined(i))
	switch {
	case stage.Final:
		made = got
	case stage.Lower:
		kernel.Combine(s.plan.Type, made, got, have)
	default:
		kernel.Combine(s.plan.Type, made, have, got)
	}
	if i == len(s.stages)-1 {
		s.scaled(s.plan.Post, made, s.o.outs...)
	}
	if stage.Send >= 0 {
		s.o.queueAll(stage.Send)
	}
}
