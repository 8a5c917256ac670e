package session

import (
	"gorun/collective"
	"gorun/worker/session/codec"
	"gorun/worker/session/slots"
)

// The daemon's part in shared-memory slots: which sessions have them, what sessions offer, and what they are sent.

// setSlotsLocked makes the slots of a new world, if it can have any. Ranks of the last one do without from now on.
func (s *Server) setSlotsLocked(w LocalWorld) {
	s.dropSlotsLocked()
	if w.Hosts != 1 || len(w.Places) != w.Size {
		return
	}
	ranks := make([]int, w.Size)
	for _, p := range w.Places {
		ranks[p.LocalRank] = p.Rank
	}
	var err error
	if s.slots, err = slots.New(w.Host, ranks); err != nil {
		s.cfg.Log.Warn("do without slots", "err", err)
	}
}

// dropSlotsLocked ends the slots; sessions keep the memory as long as they need it.
func (s *Server) dropSlotsLocked() {
	if s.slots == nil {
		return
	}
	for _, rank := range s.slots.Ranks() {
		s.slots.Leave(rank)
	}
	s.slots.Drop()
	s.wakeLocked(s.slots)
	s.slots.Region().Release()
	s.slots = nil
}

// leaveSlots marks a rank that comes to no slot any more.
func (s *Server) leaveSlots(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.slots == nil {
		return
	}
	x.slots.Leave(x.rank)
	s.wakeLocked(x.slots)
}

// wakeLocked wakes all that sleep in their slots.
func (s *Server) wakeLocked(l *slots.Table) {
	for x := range s.sessions {
		if x.slots == l && l.Asleep(x.rank) {
			x.sendPair(codec.TypeWake, 0)
		}
	}
}

// showSlots sends the rank the memory, and lets it offer to take slots.
func (s *session) showSlots() error {
	if s.slots == nil {
		return codec.Malformed("a wish for slots, where there are none")
	}
	s.inSlots = true
	region := s.slots.Region()
	s.send(region, func(b []byte) []byte { return codec.AppendSlots(b, region.Size()) })
	return nil
}

// offerSlot notes what the rank offers with an operation that is about to be submitted.
func (s *session) offerSlot(m *codec.Submit, o *operation, r *collective.Request) {
	switch {
	case s.slots == nil:
	case r.Kind == collective.Join:
		s.server.leaveSlots(s) // the others must not wait for it
	case r.Kind == collective.Allreduce && r.Group == 0 && s.inSlots:
		o.slot = r.Name
		s.slots.Offer(s.rank, r.Name, len(r.In), slots.Offer{Slot: m.TakesSlot, Wide: m.TakesWide, Belt: m.TakesBelt,
			Tensors: slots.Tensors{In: slots.Region{Number: m.In.Region, Memory: o.in}, Out: slots.Region{Number: m.Out.Region, Memory: o.out}}})
	}
}

// hideRegion notifies the ranks that were shown a region that its owner has freed it.
func (s *session) hideRegion(number uint32) {
	if s.slots == nil {
		return
	}
	place := s.slots.Place(s.rank)
	shown := s.slots.Hide(place, number)
	if shown == 0 {
		return
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	for x := range s.server.sessions {
		if x.slots == s.slots && shown>>x.slots.Place(x.rank)&1 != 0 {
			x.send(nil, func(b []byte) []byte { return codec.AppendHide(b, place, number) })
		}
	}
}
