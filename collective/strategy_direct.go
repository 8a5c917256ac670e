package collective

import "gorun/collective/schedule"

// slots hold the contributions of all hosts to a sum that every host makes for itself, in the order of positions.
type slots struct {
	memory  []byte
	stride  int64   // bytes of a slot
	missing []int32 // contributions per segment
}

// open makes a slot for each host. The steps of the op are set.
func (s *slots) open(o *op) {
	hosts := len(o.group.hosts)
	s.stride = (o.run.length(o.size) + schedule.Align - 1) &^ (schedule.Align - 1)
	s.memory = resize(s.memory, hosts*int(s.stride))
	s.missing = resize(s.missing, int((o.size+o.run.cut-1)/o.run.cut))
	for k := range s.missing {
		s.missing[k] = int32(hosts)
	}
}

// of returns where the bytes [lo, hi) of the contribution of a position are.
func (s *slots) of(o *op, pos int, lo, hi int64) []byte {
	at := int64(pos)*s.stride + o.run.length(lo)
	end := at + o.run.length(hi-lo)
	return s.memory[at:end:end]
}

// last counts a contribution to the segment at lo, and reports whether it was the last one.
func (s *slots) last(o *op, lo int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := lo / o.run.cut
	s.missing[k]--
	return s.missing[k] == 0
}

// everywhere is the base of a sum that every host makes for itself: contributions are sent from slots, and read there.
type everywhere struct {
	base
	plans
	slots slots
}

func (s *everywhere) layout(o *op, r *Request) {
	s.o, s.plans = o, plansOf(o, r)
	o.route()
	s.slots.open(o)
}

func (s *everywhere) payload(_ int, lo, hi int64) []byte {
	return s.slots.of(s.o, s.o.group.self, lo, hi)
}

func (s *everywhere) target(step int, lo, hi int64) []byte {
	return s.slots.of(s.o, s.o.run.steps[step].Peer, lo, hi)
}

// direct is an allreduce in which every host sends its contribution to every other one. All hosts add them in the
// same order.
type direct struct{ everywhere }

var directs = newStrategies[direct](func(o *op, _ *Request) bool { return o.by == schedule.ByDirect })

func (s *direct) make(_ int, lo, hi int64) {
	s.o.contribute(&s.mid, s.slots.of(s.o, s.o.group.self, lo, hi), lo, hi)
	s.count(lo, hi)
}

func (s *direct) deliver(step int, lo, hi int64, payload []byte) {
	place(s.target(step, lo, hi), payload)
	s.count(lo, hi)
}

// count adds everything up once the last contribution to [lo, hi) is there.
func (s *direct) count(lo, hi int64) {
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
}
