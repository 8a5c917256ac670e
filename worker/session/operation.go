package session

import (
	"fmt"
	"math"
	"unicode/utf8"

	"gorun/collective"
	"gorun/collective/kernel"
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
func (s *session) resolve(m *submit, o *operation) (collective.Request, error) {
	r := collective.Request{Kind: m.kind, Group: m.group, Type: m.dtype, Op: m.op, Coding: m.coding, Root: int(m.root),
		Pre: m.pre, Post: m.post, Handle: uint64(m.handle), Client: s}
	if len(m.name) == 0 || len(m.name) > maxName {
		return r, invalid("submit operation: a name is 1 to %d bytes, not %d", maxName, len(m.name))
	}
	if !utf8.Valid(m.name) {
		return r, invalid("submit operation: name %q is not UTF-8", m.name)
	}
	r.Name = s.names.get(m.name)
	if m.kind < collective.Allreduce || m.kind > collective.Peek {
		return r, invalid("submit %s: unknown kind of operation %d", r.Name, m.kind)
	}
	if len(m.splits) > 0 {
		// Not kept like shapes: splits are rarely the same twice. The engine copies them.
		s.numbers = s.numbers[:0]
		for b := m.splits; len(b) > 0; b = b[4:] {
			s.numbers = append(s.numbers, int(int32(le.Uint32(b))))
		}
		switch m.kind {
		case collective.Allreduce: // handles (follow.go)
		case collective.Alltoall, collective.Scatter:
			r.Splits = s.numbers
		case collective.AddGroup:
			r.Shape = s.numbers
		default:
			return r, invalid("submit %s: %s has no splits", r.Name, m.kind)
		}
	}
	switch m.kind {
	case collective.Barrier, collective.AddGroup, collective.RemoveGroup, collective.Join, collective.Peek:
		if m.in.region != noRegion || m.out.region != noRegion || len(m.dims) > 0 {
			return r, invalid("submit %s: %s has no tensor", r.Name, m.kind)
		}
		return r, nil
	}
	if !m.dtype.Valid() || !m.op.Valid() {
		return r, invalid("submit %s: unknown element type %d or reduction %d", r.Name, m.dtype, m.op)
	}
	r.Shape = s.shapes.get(m.dims)
	size, ok := bytesOf(r.Shape, m.dtype)
	if !ok {
		return r, invalid("submit %s: shape %v is impossible", r.Name, r.Shape)
	}
	// Who only receives may well have nothing to send.
	receives := m.kind == collective.Recv || m.kind == collective.Broadcast && int(m.root) != s.rank
	var err error
	if !receives || m.in.region != noRegion {
		if r.In, o.in, err = s.memory(m.in, size, m.dtype); err != nil {
			return r, invalid("submit %s: source: %v", r.Name, err)
		}
	}
	if m.kind == collective.Allreduce || m.kind == collective.Broadcast || m.kind == collective.Recv {
		if r.Out, o.out, err = s.memory(m.out, size, m.dtype); err != nil {
			return r, invalid("submit %s: target: %v", r.Name, err)
		}
		if m.in.region == m.out.region && m.in.offset != m.out.offset && m.in.offset < m.out.offset+size && m.out.offset < m.in.offset+size {
			return r, invalid("submit %s: source and target overlap without being the same", r.Name)
		}
	} else if m.out.region != noRegion {
		return r, invalid("submit %s: %s has no target", r.Name, m.kind)
	}
	return r, nil
}

// memory pins a piece of a region of this rank that must be size bytes long.
func (s *session) memory(p place, size uint64, t kernel.Type) ([]byte, *shm.Region, error) {
	if p.bytes != size {
		return nil, nil, fmt.Errorf("%d bytes, but the shape needs %d", p.bytes, size)
	}
	if p.region == noRegion {
		if size == 0 {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("no memory given for %d bytes", size)
	}
	r := s.regions[p.region]
	if r == nil {
		return nil, nil, fmt.Errorf("region %d is not this rank's", p.region)
	}
	if p.offset > uint64(r.Size()) || p.bytes > uint64(r.Size())-p.offset {
		return nil, nil, fmt.Errorf("%d bytes at %d are outside of region %d (%d bytes)", p.bytes, p.offset, p.region, r.Size())
	}
	if p.offset%uint64(t.Size()) != 0 {
		return nil, nil, fmt.Errorf("offset %d is not aligned to %s", p.offset, t)
	}
	r.Retain()
	end := p.offset + p.bytes
	return r.Bytes()[p.offset:end:end], r, nil
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

func (c shapes) get(dims []byte) []int {
	if shape, ok := c[string(dims)]; ok {
		return shape
	}
	if len(c) >= maxInterned {
		clear(c)
	}
	shape := make([]int, len(dims)/8)
	for i := range shape {
		shape[i] = int(int64(le.Uint64(dims[8*i:])))
	}
	c[string(dims)] = shape
	return shape
}
