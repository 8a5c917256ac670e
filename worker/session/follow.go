package session

import (
	"gorun/collective"
	"gorun/worker/session/codec"
)

// Tensors of several types that one call reduces together travel as several operations, of which one, the head, tells whether
// ranks agree on all of them. The others follow it: they are submitted before it, held here until it has succeeded, and fail
// with it. If ranks differ, not all of them have the same followers, and the engine would wait for parts that never come.

// hold keeps an operation back.
func (s *session) hold(o *operation, r collective.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.held = &r
	s.operations[o.handle] = o
}

// gather notes what follows an operation.
func (s *session) gather(m *codec.Submit, o *operation) error {
	if m.Kind != collective.Allreduce || len(m.Splits) == 0 || m.Follows() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range m.NumSplits() {
		handle := uint32(m.Split(i))
		f := s.operations[handle]
		if f == nil || f.held == nil || f.led {
			return invalid("submit %q: operation %d does not wait for another one", m.Name, handle)
		}
		f.led, f.head = true, o.subject.Name
		o.followers = append(o.followers, handle)
		s.promises[handle] = &promise{group: f.held.Group, name: f.held.Name}
	}
	return nil
}

// promise is a part that comes when its head has ended. If its rank joins before, or removes the group, others wait for the
// part all the same.
type promise struct {
	group uint32
	name  string
	owed  bool // a JOIN or the removal of the group counts on it
}

// owe adds to a request what its rank has promised to the group that it joins or removes, and returns the handles of that.
func (s *session) owe(r *collective.Request) (handles []uint32) {
	if r.Kind != collective.Join && r.Kind != collective.RemoveGroup {
		return nil
	}
	group := counted(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	for handle, p := range s.promises {
		if p.group == group {
			p.owed = true
			handles, r.Pending = append(handles, handle), append(r.Pending, p.name)
		}
	}
	return handles
}

// counted returns the group of the parts that a JOIN, or the removal of a group, counts on.
func counted(r *collective.Request) uint32 {
	if r.Kind == collective.RemoveGroup {
		return uint32(r.Root)
	}
	return 0
}

// settleOwed resolves what was pending and came before the engine had the request that counts on it.
func (s *session) settleOwed(r *collective.Request, handles []uint32) {
	names := r.Pending[len(r.Pending)-len(handles):]
	for i, handle := range handles {
		s.mu.Lock()
		promised := s.promises[handle] != nil
		s.mu.Unlock()
		if !promised {
			s.server.cfg.Engine.Resolve(s.epoch, s.rank, counted(r), names[i])
		}
	}
}

// keep ends a promise, now that the part was submitted or never will be.
func (s *session) keep(handle uint32) {
	s.mu.Lock()
	p := s.promises[handle]
	delete(s.promises, handle)
	s.mu.Unlock()
	if p != nil && p.owed {
		s.server.cfg.Engine.Resolve(s.epoch, s.rank, p.group, p.name)
	}
}

// lead submits what follows an operation that has ended, or fails it.
func (s *session) lead(followers []uint32, err error) {
	for _, handle := range followers {
		s.mu.Lock()
		o := s.operations[handle]
		if o == nil { // the session has ended
			s.mu.Unlock()
			continue
		}
		r := *o.held
		o.held = nil
		s.mu.Unlock()
		failed := err
		if failed == nil {
			failed = s.server.cfg.Engine.Submit(s.rank, r)
		}
		if failed != nil {
			s.turnDown(o, failed)
		}
		s.keep(handle)
	}
}
