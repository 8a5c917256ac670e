package session

import (
	"fmt"
	"unicode/utf8"

	"gorun/collective"
	"gorun/worker/session/codec"
	"gorun/worker/session/slots"
)

// submit takes an operation from its decoded message to the engine:
//
//	open      books the handle, unless too many operations are in flight
//	request   checks the message and pins the memory that it names
//	hold      keeps an operation that follows another one (follow.go), or
//	start     submits it to the engine
//	turnDown  ends it and sends the rank the reason, if one of these has failed
//
// Only a message that no correct rank sends is an error here: it ends the session.
func (s *session) submit(m *codec.Submit) error {
	o, err := s.open(m)
	if o == nil {
		return err
	}
	r, err := s.request(m, o)
	if err == nil && r.Follows {
		s.hold(o, r)
		return nil
	}
	if err == nil {
		err = s.start(m, o, r)
	}
	if err != nil {
		s.turnDown(o, err)
	}
	return nil
}

// open returns a blank operation, or nil for one too many, which it rejects.
func (s *session) open(m *codec.Submit) (*operation, error) {
	s.mu.Lock()
	if s.operations[m.Handle] != nil {
		s.mu.Unlock()
		return nil, codec.Malformed("handle %d is in use", m.Handle)
	}
	if len(s.operations)+s.queuedLocked() >= s.server.cfg.Operations {
		s.mu.Unlock()
		err := invalid("submit %q: %d operations are in flight already", m.Name, s.server.cfg.Operations)
		var refused operation
		_ = s.linkFollowers(m, &refused) // one refusal is enough
		s.reject(m.Handle, err)
		s.releaseFollowers(refused.followers, err)
		return nil, nil
	}
	defer s.mu.Unlock()
	o := s.takeLocked()
	s.submitted++
	o.handle, o.number, o.subject = m.Handle, s.submitted, s.subjectOf(m)
	return o, nil
}

// request turns a message into what the engine takes. Everything in m comes from the rank and is checked here.
func (s *session) request(m *codec.Submit, o *operation) (collective.Request, error) {
	r := collective.Request{Kind: m.Kind, Group: m.Group, Type: m.Type, Op: m.Op, Coding: m.Coding, Root: int(m.Root),
		Pre: m.Pre, Post: m.Post, Handle: uint64(m.Handle), Client: s, Follows: m.Follows(),
		Epoch: s.epoch} // constant since WELCOME, before which nothing comes here
	if err := s.linkFollowers(m, o); err != nil {
		return r, err
	}
	if len(m.Name) == 0 || len(m.Name) > codec.MaxName {
		return r, invalid("submit operation: a name is 1 to %d bytes, not %d", codec.MaxName, len(m.Name))
	}
	if !utf8.Valid(m.Name) {
		return r, invalid("submit operation: name %q is not UTF-8", m.Name)
	}
	r.Name = s.nameOf(m)
	if m.Kind < collective.Allreduce || m.Kind > collective.Peek {
		return r, invalid("submit %s: unknown kind of operation %d", r.Name, m.Kind)
	}
	if err := s.setSplits(m, &r); err != nil {
		return r, err
	}
	switch m.Kind {
	case collective.Barrier, collective.AddGroup, collective.RemoveGroup, collective.Join, collective.Peek:
		if m.In.Region != codec.NoRegion || m.Out.Region != codec.NoRegion || len(m.Dims) > 0 {
			return r, invalid("submit %s: %s has no tensor", r.Name, m.Kind)
		}
		return r, nil
	}
	return r, s.setTensors(m, o, &r)
}

// setSplits fills in the splits of a request, or the members of a new group.
func (s *session) setSplits(m *codec.Submit, r *collective.Request) error {
	if len(m.Splits) == 0 {
		return nil
	}
	// Not kept like shapes: splits are rarely the same twice. The engine copies them.
	s.numbers = s.numbers[:0]
	for i := range m.NumSplits() {
		s.numbers = append(s.numbers, int(m.Split(i)))
	}
	switch m.Kind {
	case collective.Allreduce: // handles (follow.go)
	case collective.Alltoall, collective.Scatter:
		r.Splits = s.numbers
	case collective.AddGroup:
		r.Shape = s.numbers
	default:
		return invalid("submit %s: %s has no splits", r.Name, m.Kind)
	}
	return nil
}

// setTensors fills in the shape and the memory of a request; o takes the pins.
func (s *session) setTensors(m *codec.Submit, o *operation, r *collective.Request) (err error) {
	if !m.Type.Valid() {
		return invalid("submit %s: unknown element type %d", r.Name, m.Type)
	}
	r.Shape = s.shapeOf(m)
	n, ok := collective.BytesOf(r.Shape, m.Type)
	if !ok {
		return invalid("submit %s: shape %v is impossible", r.Name, r.Shape)
	}
	size := uint64(n)
	// A rank that only receives may well have nothing to send.
	receives := m.Kind == collective.Recv || m.Kind == collective.Broadcast && int(m.Root) != s.rank
	if !receives || m.In.Region != codec.NoRegion {
		if r.In, o.in, err = s.memory(m.In, size, m.Type); err != nil {
			return invalid("submit %s: source: %v", r.Name, err)
		}
	}
	if m.Kind != collective.Allreduce && m.Kind != collective.Broadcast && m.Kind != collective.Recv {
		if m.Out.Region != codec.NoRegion {
			return invalid("submit %s: %s has no target", r.Name, m.Kind)
		}
		return nil
	}
	if r.Out, o.out, err = s.memory(m.Out, size, m.Type); err != nil {
		return invalid("submit %s: target: %v", r.Name, err)
	}
	return nil
}

// start submits an operation. The engine may call Complete before it returns.
func (s *session) start(m *codec.Submit, o *operation, r collective.Request) error {
	s.mu.Lock()
	s.operations[m.Handle] = o
	s.mu.Unlock()
	s.offerSlot(m, o, &r)
	counted := s.addPending(&r)
	if max(len(r.In), len(r.Out)) > codec.MaxSlotBytes { // no completion waits until a large tensor is reduced
		s.server.outbox.idle(s)
	}
	if err := s.server.cfg.Engine.Submit(s.rank, r); err != nil {
		return err
	}
	s.resolveAdded(&r, counted)
	return nil
}

// turnDown ends an operation that the engine does not have, and its followers.
func (s *session) turnDown(o *operation, err error) {
	s.mu.Lock()
	handle, name, followers := o.handle, o.slot, o.followers
	s.forgetLocked(handle, o)
	s.mu.Unlock()
	if name != "" {
		s.slots.Offer(s.rank, name, 0, slots.Offer{})
	}
	s.reject(handle, err)
	s.releaseFollowers(followers, err)
}

// reject sends the rank the refusal of an operation.
func (s *session) reject(handle uint32, err error) {
	s.mu.Lock()
	_, text := codeOf(err)
	s.failLocked(text)
	s.mu.Unlock()
	s.sendFail(handle, codec.TypeSubmit, err)
}

// invalid is a refusal of the rank's own arguments.
func invalid(format string, args ...any) error {
	return &collective.Error{Code: collective.CodeInvalid, Text: fmt.Sprintf(format, args...)}
}
