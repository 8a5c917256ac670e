package session

import (
	"gorun/collective"
	"gorun/worker/session/codec"
	"gorun/worker/shm"
)

// operation is a request between its submission and the moment the rank needs nothing of it any more.
type operation struct {
	handle   uint32
	number   uint64 // of the submission
	done     bool
	in, out  *shm.Region       // pinned until done, whatever the rank does
	result   collective.Buffer // kept from done until the rank releases it
	slot     string            // the name under which it may get a slot, "" for none
	subject  Subject
	notified bool // GiveUp has sent its failure

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

// inFlight is what a rank has submitted and was not told the end of. The session's lock guards it.
type inFlight struct {
	operations map[uint32]*operation
	pending    map[uint32]*pending // follow.go
	blank      []*operation        // for reuse
}

// takeLocked returns a blank operation.
func (f *inFlight) takeLocked() *operation {
	if n := len(f.blank); n > 0 {
		o := f.blank[n-1]
		f.blank = f.blank[:n-1]
		return o
	}
	return new(operation)
}

// forgetLocked ends an operation: its handle may be used again.
func (f *inFlight) forgetLocked(handle uint32, o *operation) {
	if f.operations[handle] == o {
		delete(f.operations, handle)
	}
	o.unpin()
	if o.result != nil {
		o.result.Release()
	}
	*o = operation{}
	f.blank = append(f.blank, o)
}

// maxInterned bounds the caches of names and shapes; a job that keeps inventing them starts over.
const maxInterned = 8192

// interned keeps what a rank submits again and again, by its encoding, so that a repeated submission makes no garbage and
// the engine may hold on to it.
type interned[V any] map[string]V

func (c interned[V]) get(b []byte, decode func() V) V {
	v, ok := c[string(b)]
	if !ok {
		if len(c) >= maxInterned {
			clear(c)
		}
		v = decode()
		c[string(b)] = v
	}
	return v
}

func (s *session) nameOf(m *codec.Submit) string {
	return s.names.get(m.Name, func() string { return string(m.Name) })
}

func (s *session) shapeOf(m *codec.Submit) []int {
	return s.shapes.get(m.Dims, func() []int {
		shape := make([]int, m.NumDims())
		for i := range shape {
			shape[i] = int(m.Dim(i))
		}
		return shape
	})
}
