package session

import (
	"errors"
	"slices"
	"time"

	"gorun/collective"
	"gorun/worker/session/codec"
	"gorun/worker/session/slots"
)

// Subject is what ranks know an operation by: process set and name.
type Subject struct {
	Group uint32
	Name  string
}

func (s *session) subjectOf(m *codec.Submit) Subject {
	subject := Subject{m.Group, s.nameOf(m)}
	if m.Kind == collective.Send || m.Kind == collective.Recv {
		subject.Group = collective.Pair(min(s.rank, int(m.Root)), max(s.rank, int(m.Root)))
	}
	return subject
}

// Waiting lists what ranks wait for in slots, without the engine's knowledge. Call it at regular intervals.
func (s *Server) Waiting(now time.Time) []collective.Stall {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots == nil {
		return nil
	}
	return s.slots.Waiting(now)
}

// Held lists the operations that are held until their head, which is open, has ended. Each waits for the same ranks as
// its head.
func (s *Server) Held(open []collective.Stall) []collective.Stall {
	s.mu.Lock()
	defer s.mu.Unlock()
	var held []collective.Stall
	for x := range s.sessions {
		for _, f := range x.heldOperations() {
			same := func(name string) func(collective.Stall) bool {
				return func(o collective.Stall) bool { return o.Group == f.Group && o.Name == name }
			}
			head := slices.IndexFunc(open, same(f.head))
			if head >= 0 && !slices.ContainsFunc(held, same(f.Name)) { // other ranks of this host may hold theirs
				stall := open[head]
				stall.Name = f.Name
				held = append(held, stall)
			}
		}
	}
	slices.SortFunc(held, collective.Older)
	return held
}

type heldOperation struct {
	Subject
	head string
}

func (s *session) heldOperations() (all []heldOperation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.operations {
		if o.held != nil && o.led {
			all = append(all, heldOperation{o.subject, o.head})
		}
	}
	return all
}

// GiveUp sends every rank the end of the world, now or when it connects. The operations in why, which wait for what will
// not come, fail with what it says, all others with err.
func (s *Server) GiveUp(err error, why map[Subject]error) {
	gone := &collective.Error{Code: collective.CodeAborted, Text: err.Error()}
	errors.As(err, &gone)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = gone
	inSlots := map[int]error{}
	if s.slots != nil {
		for _, stall := range s.slots.Waiting(time.Now()) {
			text := why[Subject{0, stall.Name}]
			for _, rank := range s.slots.Ranks() {
				missing := slices.ContainsFunc(stall.Missing, func(a collective.Absent) bool { return slices.Contains(a.Ranks, rank) })
				if text != nil && !missing && inSlots[rank] == nil {
					inSlots[rank] = text
				}
			}
		}
		s.slots.End() // before any rank hears of it
	}
	for x := range s.sessions {
		if x.known() {
			x.giveUp(why)
			reason := gone
			errors.As(inSlots[x.rank], &reason)
			x.sendGone(reason)
		}
	}
}

// giveUp fails operations, for the rank; they stay the engine's.
func (s *session) giveUp(why map[Subject]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.operations {
		if err := why[o.subject]; err != nil && !o.done {
			o.notified = true
			code, text := codeOf(err)
			s.scratch = codec.AppendFail(s.scratch[:0], o.handle, codec.TypeSubmit, code, text)
			s.sendLocked(s.scratch, nil)
		}
	}
}

// Sums lists the sums that ranks add up by themselves, at most that many.
func (s *Server) Sums(most int) []slots.Sum {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots == nil {
		return nil
	}
	return s.slots.Sums(most)
}
