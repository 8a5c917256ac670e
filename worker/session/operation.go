package session

import (
	"fmt"
	"math"
	"unicode/utf8"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/worker/session/codec"
	"gorun/worker/shm"
)

// operation is a request between its submission and the moment the rank needs nothing of it any more.
type operation struct {
	handle  uint32
	number  uint64 // of the submission
	done    bool
	in, out *shm.Region       // pinned until done, whatever the rank does
	result  collective.Buffer // kept from done until the rank releases it
	slot    string            // the name under which it may get a slot, "" for none
	subject Subject
	told    bool // by GiveUp, that it has failed

	// follow.go
	held      *collective.Request // what is submitted when its head has succeeded
	led       bool                // it has a head
	head      string              // its name
	followers []uint32            // handles
}

// unpin lets go of the rank's memory once the engine has.
func (o *operation) unpin() {
	if o.in != nil {
		o.in.Release()
	}
	if o.out != nil {
		o.out.Release()
	}
	o.in, o.out = nil, nil
}

// invalid is a refusal of the rank's own arguments.
func invalid(format string, args ...any) error {
	return &collective.Error{Code: collective.CodeInvalid, Text: fmt.Sprintf(format, args...)}
}

// resolve turns a submission into a request, and pins the memory that it names. Everything in m comes from the
// rank and is checked here; o takes the pins.
func (s *session) resolve(m *codec.Submit, o *operation) (collective.Request, error) {
	r := collective.Request{Kind: m.Kind, Group: m.Group, Type: m.Type, Op: m.Op, Coding: m.Coding, Root: int(m.Root),
		Pre: m.Pre, Post: m.Post, Handle: uint64(m.Handle), Client: s}
	if len(m.Name) == 0 || len(m.Name) > codec.MaxName {
		return r, invalid("submit operation: a name is 1 to %d bytes, not %d", codec.MaxName, len(m.Name))
	}
	if !utf8.Valid(m.Name) {
		return r, invalid("submit operation: name %q is not UTF-8", m.Name)
	}
	r.Name = s.names.get(m.Name)
	if m.Kind < collective.Allreduce || m.Kind > collective.Peek {
		return r, invalid("submit %s: unknown kind of operation %d", r.Name, m.Kind)
	}
	if len(m.Splits) > 0 {
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
			return r, invalid("submit %s: %s has no splits", r.Name, m.Kind)
		}
	}
	switch m.Kind {
	case collective.Barrier, collective.AddGroup, collective.RemoveGroup, collective.Join, collective.Peek:
		if m.In.Region != codec.NoRegion || m.Out.Region != codec.NoRegion || len(m.Dims) > 0 {
			return r, invalid("submit %s: %s has no tensor", r.Name, m.Kind)
		}
		return r, nil
	}
	if !m.Type.Valid() || !m.Op.Valid() {
		return r, invalid("submit %s: unknown element type %d or reduction %d", r.Name, m.Type, m.Op)
	}
	r.Shape = s.shapes.get(m)
	size, ok := bytesOf(r.Shape, m.Type)
	if !ok {
		return r, invalid("submit %s: shape %v is impossible", r.Name, r.Shape)
	}
	// Who only receives may well have nothing to send.
	receives := m.Kind == collective.Recv || m.Kind == collective.Broadcast && int(m.Root) != s.rank
	var err error
	if !receives || m.In.Region != codec.NoRegion {
		if r.In, o.in, err = s.memory(m.In, size, m.Type); err != nil {
			return r, invalid("submit %s: source: %v", r.Name, err)
		}
	}
	if m.Kind == collective.Allreduce || m.Kind == collective.Broadcast || m.Kind == collective.Recv {
		if r.Out, o.out, err = s.memory(m.Out, size, m.Type); err != nil {
			return r, invalid("submit %s: target: %v", r.Name, err)
		}
		if m.In.Region == m.Out.Region && m.In.Offset != m.Out.Offset && m.In.Offset < m.Out.Offset+size && m.Out.Offset < m.In.Offset+size {
			return r, invalid("submit %s: source and target overlap without being the same", r.Name)
		}
	} else if m.Out.Region != codec.NoRegion {
		return r, invalid("submit %s: %s has no target", r.Name, m.Kind)
	}
	return r, nil
}

// memory pins a piece of a region of this rank that must be size bytes long.
func (s *session) memory(p codec.Piece, size uint64, t kernel.Type) ([]byte, *shm.Region, error) {
	if p.Bytes != size {
		return nil, nil, fmt.Errorf("%d bytes, but the shape needs %d", p.Bytes, size)
	}
	if p.Region == codec.NoRegion {
		if size == 0 {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("no memory given for %d bytes", size)
	}
	r := s.regions[p.Region]
	if r == nil {
		return nil, nil, fmt.Errorf("region %d is not this rank's", p.Region)
	}
	if p.Offset > uint64(r.Size()) || p.Bytes > uint64(r.Size())-p.Offset {
		return nil, nil, fmt.Errorf("%d bytes at %d are outside of region %d (%d bytes)", p.Bytes, p.Offset, p.Region, r.Size())
	}
	if p.Offset%uint64(t.Size()) != 0 {
		return nil, nil, fmt.Errorf("offset %d is not aligned to %s", p.Offset, t)
	}
	r.Retain()
	end := p.Offset + p.Bytes
	return r.Bytes()[p.Offset:end:end], r, nil
}

// bytesOf returns the bytes of a tensor, or false if no memory holds it.
func bytesOf(shape []int, t kernel.Type) (uint64, bool) {
	n := uint64(t.Size())
	for _, d := range shape {
		switch {
		case d < 0:
			return 0, false
		case d == 0:
			n = 0
		case n > math.MaxInt64/uint64(d):
			return 0, false
		default:
			n *= uint64(d)
		}
	}
	return n, true
}

// maxInterned bounds the caches of names and shapes; a job that keeps inventing them starts over.
const maxInterned = 8192

// names and shapes keep what a rank submits again and again, so that a repeated submission makes no garbage and
// the engine may hold on to it.
type names map[string]string

func (c names) get(b []byte) string {
	if name, ok := c[string(b)]; ok {
		return name
	}
	if len(c) >= maxInterned {
		clear(c)
	}
	name := string(b)
	c[name] = name
	return name
}

type shapes map[string][]int

func (c shapes) get(m *codec.Submit) []int {
	if shape, ok := c[string(m.Dims)]; ok {
		return shape
	}
	if len(c) >= maxInterned {
		clear(c)
	}
	shape := make([]int, m.NumDims())
	for i := range shape {
		shape[i] = int(m.Dim(i))
	}
	c[string(m.Dims)] = shape
	return shape
}
