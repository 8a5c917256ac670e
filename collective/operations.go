package collective

// event is something that the engine must do: send other hosts a message, or start an operation, or fail it.
type event struct {
	op      *op         // nil for a message that is about none
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
