package session

import (
	"slices"
	"time"

	"gorun/collective"
)

// Subject is what ranks know an operation by: process set and name.
type Subject struct {
	Group uint32
	Name  string
}

func (s *session) subjectOf(m *submit) Subject {
	subject := Subject{m.group, s.names.get(m.name)}
	if m.kind == collective.Send || m.kind == collective.Recv {
		subject.Group = collective.Pair(min(s.rank, int(m.root)), max(s.rank, int(m.root)))
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
	return s.slots.waiting(now)
}

// Held lists what is held until one of the open operations of the engine has ended, and waits for what that waits for.
func (s *Server) Held(open []collective.Stall) []collective.Stall {
	s.mu.Lock()
	defer s.mu.Unlock()
	var held []collective.Stall
	for x := range s.sessions {
		for _, f := range x.heldParts() {
			same := func(name string) func(collective.Stall) bool {
				return func(o collective.Stall) bool { return o.Group == f.Group && o.Name == name }
			}
			head := slices.IndexFunc(open, same(f.head))
			if head >= 0 && !slices.ContainsFunc(held, same(f.Name)) { // other ranks of this host may hold theirs
				part := open[head]
				part.Name = f.Name
				held = append(held, part)
			}
		}
	}
	slices.SortFunc(held, collective.Older)
	return held
}

type heldPart struct {
	Subject
	head string
}

func (s *session) heldParts() (all []heldPart) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.operations {
		if o.held != nil && o.led {
			all = append(all, heldPart{o.subject, o.head})
		}
	}
	return all
}

// GiveUp is Gone for ranks that wait for what will not come: of the operations in why they are told that, of all others err.
func (s *Server) GiveUp(err error, why map[Subject]error) {
	s.mu.Lock()
	inSlots := map[int]error{}
	if s.slots != nil {
		for _, stall := range s.slots.waiting(time.Now()) {
			text := why[Subject{0, stall.Name}]
			for _, rank := range s.slots.ranks {
				missing := slices.ContainsFunc(stall.Missing, func(a collective.Absent) bool { return slices.Contains(a.Ranks, rank) })
				if text != nil && !missing && inSlots[rank] == nil {
					inSlots[rank] = text
				}
			}
		}
	}
	for x := range s.sessions {
		if x.known() {
			x.giveUp(why)
		}
	}
	s.mu.Unlock()
	s.end(err, inSlots)
}

// giveUp fails operations, for the rank; they stay the engine's.
func (s *session) giveUp(why map[Subject]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.operations {
		if err := why[o.subject]; err != nil && !o.done {
			o.told = true
			code, text := codeOf(err)
			s.scratch = appendFail(s.scratch[:0], o.handle, typeSubmit, code, text)
			s.sendLocked(s.scratch, nil)
		}
	}
}
