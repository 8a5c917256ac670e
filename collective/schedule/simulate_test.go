package schedule_test

import (
	"cmp"
	"slices"

	"gorun/collective/schedule"
)

// simulate plays an allreduce of n bytes through, message by message, and returns when the last position has its
// result. A message leaves once what it waits for is there and its sender's outgoing wire is free. It takes Alpha to
// the receiver, whose incoming wire it shares with messages from others. Steps are not cut into segments, and
// arithmetic takes no time.
func simulate(cost schedule.Cost, a schedule.Algorithm, n int64, hosts int) float64 {
	s := simulation{cost: cost}
	for p := range hosts {
		steps := schedule.Allreduce(nil, a, hosts, p, n)
		s.at = append(s.at, &actor{steps: steps, state: make([]state, len(steps))})
		for i, st := range steps {
			if st.Do == schedule.Contribute && st.After < 0 {
				s.add(event{position: p, step: i})
			}
		}
	}
	for len(s.events) > 0 {
		ev := s.events[0]
		s.events = s.events[1:]
		s.happen(ev)
	}
	return s.end
}

type simulation struct {
	cost   schedule.Cost
	at     []*actor
	events []event // by time; those of the same time in the order in which they were added
	end    float64
}

// actor is a position of a simulation.
type actor struct {
	steps   []schedule.Step
	state   []state
	out, in float64 // when the wires are free
}

// state is how far a step is.
type state int

const (
	outstanding state = iota
	arriving
	arrived // and waits for the step that it comes after
	done
)

// event is a step that may begin, arrives, or is complete.
type event struct {
	at             float64
	position, step int
}

func (s *simulation) add(ev event) {
	i, _ := slices.BinarySearchFunc(s.events, ev.at, func(e event, at float64) int {
		return cmp.Or(cmp.Compare(e.at, at), -1)
	})
	s.events = slices.Insert(s.events, i, ev)
}

func (s *simulation) happen(ev event) {
	at := s.at[ev.position]
	st := &at.steps[ev.step]
	wire := float64(st.Hi-st.Lo) * s.cost.Beta
	switch {
	case st.Do.Sends():
		start := max(ev.at, at.out)
		at.out = start + max(wire, s.cost.Gap)
		s.add(event{at: start + s.cost.Alpha, position: st.Peer, step: int(st.Tag)})
		if st.Do == schedule.Contribute { // it is made when it goes out
			s.finish(ev.position, ev.step, start)
		}
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

// finish notes that a step was done at a time, and sets free what waits for it.
func (s *simulation) finish(position, step int, now float64) {
	at := s.at[position]
	at.state[step] = done
	s.end = max(s.end, now)
	for i := step + 1; i < len(at.steps); i++ {
		switch {
		case at.steps[i].After != step:
		case at.steps[i].Do.Sends():
			s.add(event{at: now, position: position, step: i})
		case at.state[i] == arrived:
			s.finish(position, i, now)
		}
	}
}
