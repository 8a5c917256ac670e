package collective

import "sync"

// pools keep what operations are made of, so that one that repeats itself allocates nothing.
type pools struct {
	free     sync.Pool // *op
	pieces   sync.Pool // *piece
	views    sync.Pool // *view
	messages sync.Pool // *message
	buffers  sync.Pool // *[]byte, for a segment
	tiles    sync.Pool // *tiles
}

// init makes empty pools for an engine.
func (p *pools) init(e *Engine) {
	p.free.New = func() any { return &op{engine: e} }
	p.views.New = func() any { return new(view) }
	p.tiles.New = func() any { return new(tiles) }
	p.buffers.New = func() any { return new([]byte) }
	p.messages.New = func() any { return &message{engine: e} }
	p.pieces.New = func() any {
		p := new(piece)
		p.Owner = p
		return p
	}
}

// recycle takes back an op that the link holds nothing of.
func (p *pools) recycle(o *op) {
	o.forget()
	p.free.Put(o)
}

// release takes back a segment.
func (p *pools) release(s *piece) {
	s.op, s.Payload = nil, nil
	p.pieces.Put(s)
}

// view returns empty memory for the arguments of a kernel.
func (p *pools) view() *view {
	v := p.views.Get().(*view)
	v.dst, v.src = v.dst[:0], v.src[:0]
	return v
}
