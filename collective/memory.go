package collective

import "unsafe"

// tensors is the memory of an operation on this host. It is written by the layout.
type tensors struct {
	ins, outs [][]byte // of the ranks that contribute
	acc       []byte   // partials and results: an output, the root's input, or memory of the engine
	copies    [][]byte // results besides acc
	zeros     []byte   // the implicit contribution of ranks that joined
	holder    int      // local rank whose memory is sent from, or noRank, or allRanks
}

// take lists the memory of the ranks that contribute.
func (t *tensors) take(c *contributions) {
	t.ins, t.outs, t.copies, t.holder = t.ins[:0], t.outs[:0], t.copies[:0], noRank
	for i, have := range c.have {
		if have {
			t.ins = append(t.ins, c.reqs[i].In)
			t.outs = append(t.outs, c.reqs[i].Out)
		}
	}
}

// fill adds zeros of n bytes for the ranks of this host that joined, and memory to pass results through if all
// of them did.
func (t *tensors) fill(n int64) {
	t.zeros = resize(t.zeros, int(n))
	clear(t.zeros) // a result may have passed through
	t.ins = append(t.ins, t.zeros)
	if len(t.outs) == 0 {
		t.outs = append(t.outs, t.zeros)
	}
}

// holds reports whether segments are sent from the memory of a local rank.
func (t *tensors) holds(index int) bool { return t.holder == index || t.holder == allRanks }

// forget drops what would keep the memory of ranks alive.
func (t *tensors) forget() {
	clear(t.ins)
	clear(t.outs)
	clear(t.copies)
	t.acc = nil
}

// results are what the local ranks are given at the end, without Buffer.
type results struct {
	list   []Result
	shapes []int // the memory of theirs
	rows   []int // the same
}

// reset makes room for a number of ranks.
func (s *results) reset(ranks int) {
	s.list = resize(s.list, ranks)
	clear(s.list)
}

// shape returns the shape of a local rank's result: the given one, with other rows.
func (s *results) shape(index int, shape []int, rows int) []int {
	n := len(shape)
	s.shapes = resize(s.shapes, n*len(s.list))
	mine := s.shapes[index*n : (index+1)*n : (index+1)*n]
	copy(mine, shape)
	mine[0] = rows
	return mine
}

// same gives all ranks a number.
func (s *results) same(n int) {
	s.rows = append(s.rows[:0], n)
	for i := range s.list {
		s.list[i].Rows = s.rows
	}
}

// place puts a payload where it belongs, unless it was read there.
func place(dst, payload []byte) {
	if unsafe.SliceData(dst) != unsafe.SliceData(payload) {
		copy(dst, payload)
	}
}

// view is the memory for the arguments of a kernel.
type view struct {
	dst, src [][]byte
}

// cut appends the bytes [lo, hi) of every slice.
func cut(dst, of [][]byte, lo, hi int64) [][]byte {
	for _, b := range of {
		dst = append(dst, b[lo:hi])
	}
	return dst
}

// view returns empty memory for the arguments of a kernel.
func (p *pools) view() *view {
	v := p.views.Get().(*view)
	v.dst, v.src = v.dst[:0], v.src[:0]
	return v
}
