package link

// scratch is where a stream's reader puts payloads that the Handler has no place for. It shares no page with anything
// else, not even a huge one, so that it lies on the NUMA node of the CPU that its reader runs on (Mesh.Pin), where the kernel's
// own buffers of the NIC are: memory belongs to the node of whoever touches it first. The heap's pages are
// touched by anybody, and used again for something else.
type scratch struct{ room []byte }

// take returns n bytes, which may have anything in them, until it is called again.
func (s *scratch) take(n int) []byte {
	if len(s.room) < n {
		s.free()
		s.room = newPages(n)
	}
	return s.room[:n:n]
}

// free gives the memory back.
func (s *scratch) free() {
	freePages(s.room)
	s.room = nil
}
