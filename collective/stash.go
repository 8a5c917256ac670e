package collective

import (
	"sync/atomic"

	"gorun/collective/link"
)

// stash holds what arrives for an operation before it starts. op.mu guards it.
type stash struct {
	segments []stashed
	bytes    int64
	foreseen atomic.Int64 // bytes of the tensor, -1 if they are not known yet; set when this host declares
}

// stashed is a segment that waits for the start of its op.
type stashed struct {
	peer    int
	header  link.Header
	payload *[]byte // of Engine.buffers
}

func (s *stash) reset() {
	clear(s.segments)
	s.segments, s.bytes = s.segments[:0], 0
}

// release gives a limit that operations share back what the op took of it.
func (s *stash) release(shared *atomic.Int64) {
	if s.foreseen.Load() < 0 {
		shared.Add(-s.bytes)
	}
	s.bytes = 0
}
