package collective

// negotiation finds out when an operation may start: when all ranks of its group have submitted their contributions, or
// have joined, and whether all of them submitted the same. It is pure, without I/O, clock or goroutine: the engine
// calls it with Engine.mu held, and carries out the events that it reports through operations.report. It works on the
// engine's operations and groups, but knows nothing of how an operation is carried out, as strategies know nothing of
// it: what it leaves behind for them is the ballot of an op.
//
// readiness is the implementation: every host of a group declares to every other one what its ranks submitted. One in
// which hosts declare along a tree, or remember what repeats itself, would take its place here.
type negotiation interface {
	// submit takes the contribution of the index-th local rank of a group.
	submit(g *group, index int, r Request) *Error
	// hear takes what another host declared, in the order in which it did.
	hear(peer int, message []byte) error
	// resolve takes note that a local rank contributes nothing under a name that was pending when it joined or removed
	// the group.
	resolve(g *group, index int, name string)
	// leave takes note that a rank, of any host, takes part in nothing any more: what cannot start without it fails.
	leave(rank int)
	// pause keeps what this host would declare from now on, or declares what was kept.
	pause(on bool)
	// finish ends a use of a name: what was heard of the next one becomes its beginning.
	finish(o *op)
}

// event is something that the engine must do about an operation: send other hosts a message about it, or start it, or
// fail it.
type event struct {
	op      *op
	send    []byte      // a message, until the event is drained
	to      []HostRanks // who gets it; this host does not, if it is one of them
	start   bool
	err     *Error
	message *message // composed of send
}

// operations are the ones of all groups that are not over, and what happened to them. Engine.mu guards them.
type operations struct {
	open   map[uint64]*op // by hash of group and name
	fresh  func(g *group, id uint64, name string) *op
	events []event // to be carried out, in this order

	live int // operations between hosts that started, until the link holds nothing of them
	// lasting are the live ones that are not open any more: they have their results, and peers may not have all that
	// was sent of them.
	lasting []*op

	recorder *recorder
}

// begin opens an operation.
func (s *operations) begin(g *group, id uint64, name string) *op {
	o := s.fresh(g, id, name)
	s.open[id] = o
	s.recorder.begin(o)
	return o
}

// report adds an event.
func (s *operations) report(e event) {
	switch {
	case e.err != nil:
		s.recorder.ended(e.op, true)
	case e.start:
		s.recorder.started(e.op)
	}
	s.events = append(s.events, e)
}

// keep adds to lasting.
func (s *operations) keep(o *op) {
	o.lasts = len(s.lasting)
	s.lasting = append(s.lasting, o)
}

// release takes out of lasting what keep added, and counts down live.
func (s *operations) release(o *op) {
	last := len(s.lasting) - 1
	s.lasting[o.lasts] = s.lasting[last]
	s.lasting[o.lasts].lasts = o.lasts
	s.lasting[last] = nil
	s.lasting = s.lasting[:last]
	s.live--
}
