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
