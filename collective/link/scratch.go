package link

// scratch is where a stream's reader puts payloads for which the Handler has no place. It shares no page with anything
// else, not even a huge one, so that it is on the NUMA node of its reader's CPU (Mesh.Pin), near the kernel's buffers
// of the NIC: memory belongs to the node that touches it first. Any goroutine may have touched the heap's pages before.
type scratch struct{ room []byte }

// take returns n bytes with arbitrary content, valid until the next call.
func (s *scratch) take(n int) []byte {
	if len(s.room) < n {
		s.free()
		s.room = newPages(n)
	}
	return s.room[:n:n]
}

// free releases the memory.
func (s *scratch) free() {
	freePages(s.room)
	s.room = nil
}
