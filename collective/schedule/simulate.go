package schedule

import "container/heap"

// Simulate plays an allreduce of n bytes through, message by message, and returns when the last position has its
// result. A message leaves once what it waits for is there and its sender's outgoing wire is free. It takes Alpha to
// the receiver, whose incoming wire it shares with messages from others. Steps are not cut into segments, and
// arithmetic takes no time.
//
// The formulas of Cost are checked against it, and it shows how they fare where none fits exactly.
func (c Cost) Simulate(a Algorithm, n int64, hosts int) float64 {
	if hosts < 2 || n == 0 {
		return 0
	}
	a = a.Fit(hosts, n)
	s := simulation{cost: c}
	count := hosts
	if a == ByRing || a == ByDirect {
		// All positions do the same at the same time: one stands for all, and what it sends is what it gets.
		count, s.alike = 1, true
	}
	for p := range count {
		steps := Allreduce(nil, a, hosts, p, n)
		if a == ByDirect {
			for i := range hosts - 1 {
				steps[i].Tag = uint16(hosts - 1 + i)
			}
		}
		s.at = append(s.at, newActor(steps))
	}
	return s.run()
}

type simulation struct {
	cost   Cost
	at     []*actor
	alike  bool
	events events
	count  int
	end    float64
}

// actor is a position of a simulation.
type actor struct {
	steps   []Step
	state   []state
	waits   []int   // by step: the first one that waits for it, -1 for none
	next    []int   // by step: the next one that waits for the same
	out, in float64 // when the wires are free
}

// state is how far a step is.
type state uint8

const (
	outstanding state = iota
	arriving
	arrived // and waits for the step that it comes after
	done
)

func newActor(steps []Step) *actor {
	n := len(steps)
	a := &actor{steps: steps, state: make([]state, n), waits: make([]int, n), next: make([]int, n)}
	for i := range a.waits {
		a.waits[i] = -1
	}
	for i := n - 1; i >= 0; i-- {
		if after := steps[i].After; after >= 0 {
			a.next[i], a.waits[after] = a.waits[after], i
		}
	}
	return a
}

func (s *simulation) run() float64 {
	for p, at := range s.at {
		for i, st := range at.steps {
			if st.Do == Contribute && st.After < 0 {
				s.add(event{at: 0, position: p, step: i})
			}
		}
	}
	for len(s.events) > 0 {
		ev := heap.Pop(&s.events).(event)
		at := s.at[ev.position]
		st := &at.steps[ev.step]
		wire := float64(st.Hi-st.Lo) * s.cost.Beta
		if st.Do.Sends() {
			start := max(ev.at, at.out)
			at.out = start + max(wire, s.cost.Gap)
			to := st.Peer
			if s.alike {
				to = 0
			}
			s.add(event{at: start + s.cost.Alpha, position: to, step: int(st.Tag)})
			if st.Do == Contribute { // it is made when it goes out
				s.finish(ev.position, ev.step, start)
			}
			continue
		}
		switch {
		case at.state[ev.step] == outstanding:
			at.state[ev.step] = arriving
			at.in = max(ev.at, at.in) + wire
			s.add(event{at: at.in, position: ev.position, step: ev.step})
		case st.After < 0 || at.state[st.After] == done:
			s.finish(ev.position, ev.step, ev.at)
		default:
			at.state[ev.step] = arrived
		}
	}
	return s.end
}

// finish notes that a step was done at a time, and sets free what waits for it.
func (s *simulation) finish(position, step int, now float64) {
	at := s.at[position]
	at.state[step] = done
	s.end = max(s.end, now)
	for i := at.waits[step]; i >= 0; i = at.next[i] {
		switch {
		case at.steps[i].Do.Sends():
			s.add(event{at: now, position: position, step: i})
		case at.state[i] == arrived:
			s.finish(position, i, now)
		}
	}
}

func (s *simulation) add(ev event) {
	ev.number = s.count
	s.count++
	heap.Push(&s.events, ev)
}

// event is a step that may begin, arrives, or is complete.
type event struct {
	at       float64
	number   int // events of the same time come in the order in which they were added
	position int
	step     int
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if e[i].at != e[j].at {
		return e[i].at < e[j].at
	}
	return e[i].number < e[j].number
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}
