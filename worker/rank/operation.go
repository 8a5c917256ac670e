package rank

import (
	"fmt"
	"hash/maphash"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/worker/session/codec"
)

// Piece is a tensor's place. The zero Piece is none.
type Piece struct {
	Memory        *Memory
	Offset, Bytes int
}

func (p Piece) number() uint32 {
	if p.Memory == nil {
		return codec.NoRegion
	}
	return p.Memory.region
}

func (p Piece) place() codec.Piece {
	return codec.Piece{Region: p.number(), Offset: uint64(p.Offset), Bytes: uint64(p.Bytes)}
}

// Operation is what a rank submits: collective.Request, with places instead of memory.
type Operation struct {
	Kind    collective.Kind
	Name    string
	Group   uint32
	Type    kernel.Type
	Op      kernel.Op
	Coding  kernel.Coding
	Root    int
	Pre     float64 // 0, not set, is 1
	Post    float64 // 0, not set, is 1
	Shape   []int
	Splits  []int
	In, Out Piece
}

// Outcome is the result of a kind that brings its own memory; it may be read until Release.
type Outcome struct {
	Bytes       []byte
	Shape, Rows []int
	handle      uint32
	kept        bool
}

// name identifies an operation among ranks: each set has its own names, and so has each pair of ranks.
type name struct {
	hash uint64
	set  uint32
	kind collective.Kind // 0 where other kinds have the same names
	peer int
}

var nameSeed = maphash.MakeSeed()

func (o *Operation) name() name {
	n := name{hash: maphash.String(nameSeed, o.Name), set: o.Group}
	switch o.Kind {
	case collective.Send, collective.Recv:
		n.kind, n.peer = o.Kind, o.Root
	case collective.AddGroup, collective.RemoveGroup, collective.Join:
		n.kind = o.Kind
	}
	return n
}

// Do submits an operation and waits for its end. Ranks of one host carry out small repeated ones without the daemon.
func (s *Session) Do(o *Operation) (Outcome, error) {
	if err := s.check(o); err != nil {
		return Outcome{}, err
	}
	x := s.slots.slot(o)
	if x != nil && x.state == slotTaken {
		if met, err := s.meet(x, o); met || err != nil {
			return Outcome{}, err
		}
	}
	handle, err := s.submit(o, s.slots.offer(x, o))
	if err != nil {
		return Outcome{}, err
	}
	return s.Wait(handle)
}

// Submit starts an operation; Wait must be called for its handle. It keeps nothing of o. Its name is in flight until
// Wait has reported the end, however fast the others are.
func (s *Session) Submit(o *Operation) (handle uint32, err error) {
	if err := s.check(o); err != nil {
		return 0, err
	}
	s.slots.close(o)
	handle, err = s.submit(o, slotOffer{})
	if err == nil {
		n := o.name()
		s.names[n], s.named[handle] = true, n
	}
	return handle, err
}

// free frees the name of an operation whose end the caller has seen.
func (s *Session) free(handle uint32) {
	if n, ok := s.named[handle]; ok {
		delete(s.names, n)
		delete(s.named, handle)
	}
}

// check returns why an operation cannot be submitted.
func (s *Session) check(o *Operation) error {
	if len(o.Shape) > codec.MaxDims || len(o.Name) > codec.MaxName || len(o.Splits) > codec.MaxMessage/8 {
		return fmt.Errorf("submit operation: %d dimensions, %d splits or a name of %d bytes are too many", len(o.Shape), len(o.Splits), len(o.Name))
	}
	if s.gone != nil {
		return fmt.Errorf("submit %s: %w", o.Name, s.gone)
	}
	if len(s.names) > 0 && s.names[o.name()] {
		return fmt.Errorf("submit %s: an operation of this name is in flight", o.Name)
	}
	if o.Kind == collective.Join {
		s.slots.leave() // the daemon marks this rank as one that never comes again
	}
	return nil
}

// submit gives an operation to the daemon.
func (s *Session) submit(o *Operation, offers slotOffer) (handle uint32, err error) {
	handle = s.number()
	call := codec.Call{Handle: handle, Kind: o.Kind, Type: o.Type, Op: o.Op, Coding: o.Coding, Root: int32(o.Root), Group: o.Group,
		Pre: o.Pre, Post: o.Post, In: o.In.place(), Out: o.Out.place(),
		TakesSlot: offers.slot, TakesWide: offers.wide}
	s.out = codec.AppendSubmit(s.out[:0], &call, o.Shape, o.Splits, o.Name)
	if offers.slot {
		s.slots.offered = handle
	}
	if err := s.send(); err != nil {
		return 0, fmt.Errorf("submit %s: %w", o.Name, err)
	}
	s.open[handle] = true
	switch o.Kind {
	case collective.Allreduce, collective.Broadcast, collective.Barrier, collective.Send, collective.Recv:
	default:
		s.carries[handle] = true
	}
	return handle, nil
}

// Wait returns when the operation is complete. A *collective.Error is its failure, and others may go on.
func (s *Session) Wait(handle uint32) (Outcome, error) {
	began := s.counts.Waits()
	for s.open[handle] {
		err := s.gone
		if err == nil {
			err = s.receive(nil)
		}
		if err != nil {
			s.counts.Waited(began, 0)
			return Outcome{}, fmt.Errorf("wait for operation: %w", err)
		}
	}
	s.counts.Waited(began, s.done[handle].Took)
	c, ok := s.done[handle]
	if !ok {
		return Outcome{}, fmt.Errorf("wait for operation: no handle %d", handle)
	}
	delete(s.done, handle)
	s.free(handle)
	if c.Code != 0 {
		return Outcome{}, &collective.Error{Code: c.Code, Text: c.Text}
	}
	if c.Region == codec.NoRegion {
		return Outcome{}, nil
	}
	return Outcome{Bytes: s.results[c.Region][c.Offset : c.Offset+c.Bytes], Shape: c.Dims, Rows: c.Rows, handle: handle, kept: true}, nil
}

// Release gives back the memory of a result.
func (s *Session) Release(o Outcome) error {
	if !o.kept {
		return nil
	}
	s.out = codec.AppendPair(s.out[:0], codec.TypeRelease, o.handle)
	if err := s.send(); err != nil {
		return fmt.Errorf("release result: %w", err)
	}
	return nil
}
