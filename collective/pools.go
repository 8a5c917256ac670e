package collective

import "sync"

// pools keep what operations are made of, so that one that repeats itself allocates nothing.
type pools struct {
	free     sync.Pool // *op
	pieces   sync.Pool // *piece
	views    sync.Pool // *view
	messages sync.Pool // *message
	buffers  sync.Pool // *[]byte, for a segment
}
