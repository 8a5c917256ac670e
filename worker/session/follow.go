package session

import (
	"gorun/collective"
	"gorun/worker/session/codec"
)

// Tensors of several types that one call reduces together travel as several operations. One of them, the head, finds
// out whether ranks agree on all of them. The others follow it: ranks submit them before it, the daemon holds them
// until it has succeeded, and they fail with it. If ranks differ, not all of them have the same followers, and the
// engine would wait for contributions that never come.

// hold keeps an operation back.
func (s *session) hold(o *operation, r collective.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.held = &r
	s.operations[o.handle] = o
}

// linkFollowers notes what follows an operation.
func (s *session) linkFollowers(m *codec.Submit, o *operation) error {
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
		s.pending[handle] = &pending{group: f.held.Group, name: f.held.Name}
	}
	return nil
}

// pending is a follower that is submitted when its head has ended. If its rank joins before, or removes the group,
// others wait for it all the same.
type pending struct {
	group   uint32
	name    string
	counted bool // a JOIN or the removal of the group counts on it
}

// addPending adds what the rank still submits to a group to the request that joins or removes it, and returns its handles
// in the same order.
func (s *session) addPending(r *collective.Request) (all []uint32) {
	if r.Kind != collective.Join && r.Kind != collective.RemoveGroup {
		return nil
	}
	group := counted(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	for handle, p := range s.pending {
		if p.group == group {
			p.counted = true
			all, r.Pending = append(all, handle), append(r.Pending, p.name)
		}
	}
	return all
}

// counted returns the group whose pending operations a JOIN, or the removal of a group, counts on.
func counted(r *collective.Request) uint32 {
	if r.Kind == collective.RemoveGroup {
		return uint32(r.Root)
	}
	return 0
}

// resolveAdded resolves pending operations that ended before the engine had the request that counts on them.
func (s *session) resolveAdded(r *collective.Request, all []uint32) {
	for i, handle := range all {
		s.mu.Lock()
		still := s.pending[handle] != nil
		s.mu.Unlock()
		if !still {
			s.server.cfg.Engine.Resolve(s.epoch, s.rank, counted(r), r.Pending[i])
		}
	}
}

// resolvePending ends a pending operation: it was submitted or never will be.
func (s *session) resolvePending(handle uint32) {
	s.mu.Lock()
	p := s.pending[handle]
	delete(s.pending, handle)
	s.mu.Unlock()
	if p != nil && p.counted {
		s.server.cfg.Engine.Resolve(s.epoch, s.rank, p.group, p.name)
	}
}

// releaseFollowers submits what follows an operation that has ended, or fails it.
func (s *session) releaseFollowers(followers []uint32, err error) {
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
		s.resolvePending(handle)
	}
}
