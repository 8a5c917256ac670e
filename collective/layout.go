package collective

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/collective/schedule"
)

// nonTemporal is the size of all results together from which they are stored past the caches, unless the
// lines are there anyway because they are inputs too.
const nonTemporal = 32 << 20

// layout lays an agreed op out: memory, steps and counters.
func (o *op) layout() {
	g, r := o.group, o.lead()
	o.kind, o.holder = r.Kind.moves(), nobody
	size, _ := bytesOf(r.Shape, r.Type)
	o.size, o.cut = int64(size), o.engine.segment
	o.err, o.late = nil, false
	o.steps = o.steps[:0]
	o.slots = o.slots[:0]
	o.ins, o.outs, o.copies = o.ins[:0], o.outs[:0], o.copies[:0]
	o.results = resize(o.results, len(o.reqs))
	clear(o.results)
	for i, have := range o.have {
		if have {
			o.ins = append(o.ins, o.reqs[i].In)
			o.outs = append(o.outs, o.reqs[i].Out)
		}
	}
	if o.lacking() && o.kind == Allreduce {
		o.fill()
	}
	o.coded.coding, o.coded.typ = kernel.CodingNone, r.Type
	if len(g.hosts) > 1 && o.size > 0 && !o.inWords {
		o.coded.coding = max(r.Coding, kernel.CodingNone)
	}
	switch o.kind {
	case Allreduce:
		o.last = o.codedPlan(r)
		if o.climbs() {
			o.layoutAdasum(g, r)
		} else {
			o.layoutAllreduce(g, r)
		}
	case Broadcast:
		o.layoutBroadcast(g, r)
	case Allgather:
		o.layoutAllgather(g)
	case ReduceScatter:
		if r.Kind == Reduce {
			o.layoutReduce(g, r)
		} else {
			o.layoutReduceScatter(g, r)
		}
	case Alltoall:
		o.layoutAlltoall(g, r)
	case AddGroup:
		o.layoutAddGroup(r)
	case Join:
		o.layoutJoin(g)
	case RemoveGroup:
		o.engine.removeGroup(o.epoch, uint32(r.Root))
	}
	o.count()
}

func (o *op) layoutAllreduce(g *group, r *Request) {
	hosts := len(g.hosts)
	o.last.NonTemporal = o.size*int64(len(o.outs)) >= nonTemporal && !same(o.ins[0], o.outs[0])
	o.mid, o.combine = o.last, o.last
	o.mid.Post, o.combine.Pre = 1, 1
	o.join = o.mid
	o.join.Pre = 1
	o.mid.NonTemporal, o.join.NonTemporal = false, false // partials are sent from the cache
	o.acc = o.outs[0]
	o.copies = append(o.copies, o.outs[1:]...)
	if hosts == 1 || o.size == 0 || o.inWords {
		return
	}
	cost := o.cost
	cost.Beta *= float64(o.length(o.size)) / float64(o.size)
	by := o.engine.algorithm(cost, o.size, hosts)
	if by == schedule.ByRing && o.size >= o.engine.ringPart*int64(hosts*len(g.rings)) && len(g.rings) > 0 {
		o.steps = schedule.Rings(o.steps, g.rings, g.self, o.size)
	} else {
		o.steps = schedule.Allreduce(o.steps, by, hosts, g.self, o.size)
	}
	switch by {
	case schedule.ByDirect:
		o.slot = (o.length(o.size) + schedule.Align - 1) &^ (schedule.Align - 1)
		o.slots = resize(o.slots, hosts*int(o.slot))
	case schedule.ByRecursiveDoubling:
		// What is sent is added to afterwards: the link must copy it, as it does with what is so short.
		o.cut = min(o.cut, schedule.DoublingSegment, link.CopyLimit)
	default:
		if o.coded.on() {
			break // nothing is sent from a rank's memory
		}
		o.holder = o.present()
		if len(o.ins) == 1 && r.Pre == 1 {
			o.raw = o.ins[0]
		}
	}
	if o.coded.on() {
		o.setCoding(by)
	}
}

func (o *op) layoutBroadcast(g *group, r *Request) {
	root, _ := g.find(r.Root)
	o.acc, o.holder = o.outs[0], 0
	if root.pos == g.self {
		o.acc, o.holder = o.ins[root.index], root.index
	}
	for _, out := range o.outs {
		if !same(out, o.acc) {
			o.copies = append(o.copies, out)
		}
	}
	switch hosts := len(g.hosts); {
	case hosts == 1 || o.size == 0:
		o.holder = nobody
	case o.engine.tree(o.cost, o.size, hosts):
		o.steps = schedule.Tree(o.steps, hosts, g.self, root.pos, o.size)
	default:
		o.steps = schedule.Chain(o.steps, hosts, g.self, root.pos, o.size)
	}
}

// layoutReduceScatter gives every rank its rows of the result, in the order of ranks; the first ones get
// one more if they cannot get the same. The result memory is as large as the tensor, and the partials of
// the other hosts' rows pass through it: each byte of it is written once, so that nothing waits for a peer
// to have a partial, and the memory goes when the link holds nothing of it.
func (o *op) layoutReduceScatter(g *group, r *Request) {
	o.last = o.codedPlan(r)
	o.mid = o.last
	o.mid.Post = 1
	if !o.provide(o.size) {
		return
	}
	row, _ := bytesOf(r.Shape[1:], r.Type)
	each, more := r.Shape[0]/len(g.ranks), r.Shape[0]%len(g.ranks)
	o.blocks = o.blocks[:0]
	at := 0
	for i, seat := range g.seats {
		rows := each
		if i < more {
			rows++
		}
		end := at + rows*row
		if n := len(o.blocks); n > 0 && o.blocks[n-1].Owner == seat.pos {
			o.blocks[n-1].Hi = int64(end) // one block for neighbours on one host
		} else {
			o.blocks = append(o.blocks, schedule.Block{Owner: seat.pos, Lo: int64(at), Hi: int64(end)})
		}
		if seat.pos == g.self {
			o.results[seat.index] = Result{Lo: at, Hi: end, Shape: o.shapeOf(seat.index, r.Shape, rows)}
		}
		at = end
	}
	o.steps = schedule.Scatter(o.steps, len(g.hosts), g.self, o.blocks)
	if o.coded.on() {
		o.setCoding(schedule.ByRing)
	}
}

// layoutAlltoall gives every local rank what all ranks have for it, in the order of ranks. Rows go straight
// from the input of their sender, whose ranks hear of the end only when the peers have everything, to their
// place in the result.
func (o *op) layoutAlltoall(g *group, r *Request) {
	bytes, _ := bytesOf(r.Shape[1:], r.Type)
	row := int64(bytes)
	o.received(g)
	o.size = 0
	o.starts = resize(o.starts, len(g.ranks)*len(o.reqs)) // of what each rank sends, by local receiver
	for _, seat := range g.seats {
		if seat.pos != g.self {
			continue
		}
		rows, lo, total := o.results[seat.index].Rows, o.size, 0
		for i, n := range rows {
			o.starts[i*len(o.reqs)+seat.index] = o.size
			if row != 0 && int64(n) > (math.MaxInt64-o.size)/row { // no memory of the senders holds that either
				o.err = &Error{Code: CodeInternal, Text: fmt.Sprintf("%s %q: the result does not fit any memory", r.Kind, o.name)}
				o.size = 0
				return
			}
			o.size += int64(n) * row
			total += n
		}
		o.results[seat.index] = Result{Lo: int(lo), Hi: int(o.size), Shape: o.shapeOf(seat.index, r.Shape, total), Rows: rows}
	}
	if !o.provide(o.size) || len(g.hosts) == 1 {
		return
	}
	o.holder = everybody
	o.base, o.source = o.base[:0], o.source[:0]
	o.steps = schedule.Exchange(o.steps, g.self, g.owned, func(from, to int) int64 {
		a, b := g.seats[from], g.seats[to]
		if a.pos != g.self {
			o.base, o.source = append(o.base, o.starts[from*len(o.reqs)+b.index]), append(o.source, 0)
			return int64(o.results[b.index].Rows[from]) * row
		}
		lo := o.sent(a.index, to) * row
		o.base, o.source = append(o.base, lo), append(o.source, a.index)
		return int64(o.reqs[a.index].Splits[to]) * row
	})
}

// sent returns the rows of a local rank's input before those for the to-th rank of the group.
func (o *op) sent(index, to int) int64 {
	n := 0
	for _, rows := range o.reqs[index].Splits[:to] {
		n += rows
	}
	return int64(n)
}

// received sets the rows that each local rank gets of each rank of an alltoall's group.
func (o *op) received(g *group) {
	n := len(g.ranks)
	o.rows = resize(o.rows, n*len(o.results))
	for i := range o.results {
		o.results[i].Rows = o.rows[i*n : (i+1)*n : (i+1)*n]
	}
	for from, a := range g.seats {
		if a.pos != g.self {
			continue
		}
		for to, b := range g.seats {
			if b.pos == g.self {
				o.results[b.index].Rows[from] = o.reqs[a.index].Splits[to]
			}
		}
	}
	for pos := range o.votes {
		if pos == g.self {
			continue
		}
		v, _, _ := readVariant(o.votes[pos].body)
		for i := range v.count() {
			rank, _ := v.rank(i)
			from, _ := slices.BinarySearch(g.ranks, rank)
			for to, b := range g.seats {
				if b.pos == g.self {
					o.results[b.index].Rows[from] = v.split(i, to)
				}
			}
		}
	}
}

func (o *op) layoutAddGroup(r *Request) {
	o.rows = append(o.rows[:0], int(o.engine.addGroup(o.epoch, slices.Clone(r.Shape))))
	for i := range o.results {
		o.results[i].Rows = o.rows
	}
}

// shapeOf returns the shape of a local rank's result: the given one, with other rows.
func (o *op) shapeOf(index int, shape []int, rows int) []int {
	n := len(shape)
	o.shapes = resize(o.shapes, n*len(o.reqs))
	mine := o.shapes[index*n : (index+1)*n : (index+1)*n]
	copy(mine, shape)
	mine[0] = rows
	return mine
}

// provide gets result memory. If there is none, because ranks keep other results, the ranks of this host fail, but what
// others need passes through all the same. If that is too much it returns false: this host has no part in the operation, or
// not yet if it is late, or else the world cannot go on.
func (o *op) provide(n int64) bool {
	e, here := o.engine, o.group.hosts[o.group.self]
	b, err := e.alloc(int(n))
	if err == nil {
		o.buffer, o.acc = b, b.Bytes()[:n]
		return true
	}
	o.err = &Error{Code: CodeInternal, Text: fmt.Sprintf("%s %q: allocate %d bytes on %s: %v", o.reqs[0].Kind, o.name, n, here.Name, err)}
	if len(o.group.hosts) == 1 {
		o.size = 0 // nothing passes through
		return false
	}
	d, late := e.detours.take(n)
	if d == nil {
		o.size, o.late = 0, late
		if !late {
			e.breaks(here.ID, fmt.Errorf("%w, and as other hosts need it to pass through, which may take %d bytes, the operation cannot end", o.err, e.detours.limit))
		}
		return false
	}
	o.buffer, o.acc = d, d.heap
	return true
}

// unfit returns the error of an operation whose result is larger than what a host has memory for, the same on all hosts.
func (o *op) unfit() *Error {
	r, g := &o.reqs[0], o.group
	if !r.Kind.provides() {
		return nil
	}
	most, who, more := o.need(everybody), -1, 0
	for pos := range o.votes {
		if room := o.votes[pos].room; room == 0 || most <= room || o.need(pos) <= room {
			continue
		}
		if who < 0 {
			who = pos
		} else {
			more++
		}
	}
	if who < 0 {
		return nil
	}
	text := fmt.Sprintf("%s %q: the result of %d bytes is too large for %s, which has room for %d", r.Kind, o.name, o.need(who), g.hosts[who].Name, o.votes[who].room)
	if more > 0 {
		text += fmt.Sprintf(", and for %d more hosts", more)
	}
	return &Error{Code: CodeInternal, Text: text + ": submit it in parts"}
}

// need returns the bytes of result memory of an agreed op on the host at a position, or a bound for everybody.
func (o *op) need(pos int) uint64 {
	r := &o.reqs[0]
	if r.Kind.moves() == ReduceScatter {
		n, _ := bytesOf(r.Shape, r.Type)
		return uint64(n)
	}
	var rows uint64
	add := func(n int) { rows = min(rows+uint64(n), math.MaxInt64) }
	for i := range o.votes {
		v, _, _ := readVariant(o.votes[i].body)
		for i := range v.count() {
			if pos == everybody || r.Kind == Allgather {
				_, n := v.rank(i)
				add(n)
				continue
			}
			for _, to := range o.group.owned[pos] {
				add(v.split(i, to))
			}
		}
	}
	row, _ := bytesOf(r.Shape[1:], r.Type)
	hi, lo := bits.Mul64(rows, uint64(row))
	if hi != 0 {
		return math.MaxUint64
	}
	return lo
}

// layoutAllgather gives every rank its place in the result, in the order of ranks.
func (o *op) layoutAllgather(g *group) {
	shape := o.shapeOf(0, o.reqs[0].Shape, 0)
	row, _ := bytesOf(shape[1:], o.reqs[0].Type)
	rows := o.rowsByRank(g)
	o.blocks, o.starts = o.blocks[:0], o.starts[:0]
	o.size = 0
	for i, seat := range g.seats {
		n := int64(rows[i]) * int64(row)
		if row != 0 && (int64(rows[i]) > math.MaxInt64/int64(row) || o.size > math.MaxInt64-n) || rows[i] > math.MaxInt-shape[0] {
			o.err = &Error{Code: CodeInternal, Text: fmt.Sprintf("allgather %q: the result does not fit any memory", o.name)}
			o.size = 0
			return
		}
		o.blocks = append(o.blocks, schedule.Block{Owner: seat.pos, Lo: o.size, Hi: o.size + n})
		o.size += n
		shape[0] += rows[i]
	}
	o.starts = resize(o.starts, len(o.reqs))
	for i, seat := range g.seats {
		if seat.pos == g.self {
			o.starts[seat.index] = o.blocks[i].Lo
		}
	}
	if !o.provide(o.size) {
		return
	}
	for i := range o.results {
		o.results[i] = Result{Hi: int(o.size), Shape: shape, Rows: rows}
	}
	o.steps = schedule.Gather(o.steps, len(g.hosts), g.self, o.blocks)
	o.source = resize(o.source, len(o.steps))
	for i := range o.steps {
		if s := &o.steps[i]; s.Do == schedule.Part {
			// Empty blocks may share a start, but have no segments.
			o.source[i] = o.ownerOf(s.Lo, s.Hi)
		}
	}
}

// ownerOf returns the local rank whose block of an allgather is [lo, hi).
func (o *op) ownerOf(lo, hi int64) int {
	for i := range o.ins {
		if o.starts[i] == lo && int64(len(o.ins[i])) == hi-lo {
			return i
		}
	}
	return 0
}

// rowsByRank returns what each rank of the group contributes to an allgather.
func (o *op) rowsByRank(g *group) []int {
	o.rows = resize(o.rows, len(g.ranks))
	put := func(rank, n int) {
		i, _ := slices.BinarySearch(g.ranks, rank)
		o.rows[i] = n
	}
	for i, r := range g.local() {
		put(r, o.reqs[i].rows())
	}
	for pos := range o.votes {
		if pos == g.self {
			continue
		}
		v, _, _ := readVariant(o.votes[pos].body)
		for i := range v.count() {
			put(v.rank(i))
		}
	}
	return o.rows
}

// count sets the counters for the steps.
func (o *op) count() {
	o.first = o.first[:0]
	o.queued = resize(o.queued, len(o.group.hosts))
	clear(o.queued)
	o.undone = resize(o.undone, len(o.steps))
	o.chained = false
	bits, own, collects := 0, 0, 0 // own: segments that this host makes or receives
	for i := range o.steps {
		s := &o.steps[i]
		n := o.segments(s)
		o.first = append(o.first, bits)
		bits += n
		o.undone[i] = int32(n)
		switch s.Do {
		case schedule.Part:
			own += n
			o.queued[s.Peer] += int32(n)
		case schedule.Send:
			o.queued[s.Peer] += int32(n)
		case schedule.Collect:
			collects = n
			own += n
		default:
			own += n
			o.chained = o.chained || s.After >= 0
		}
	}
	o.open = append(o.open[:0], o.undone...)
	o.done = resize(o.done, (bits+63)/64)
	clear(o.done)
	o.seen = resize(o.seen, (bits+63)/64)
	clear(o.seen)
	o.missing = resize(o.missing, collects)
	for k := range o.missing {
		o.missing[k] = int32(len(o.group.hosts))
	}
	o.remaining = own + 1
	if o.inWords {
		o.remaining++ // the parts that came with the ready messages
	}
	if o.kind == Alltoall && len(o.group.hosts) > 1 {
		o.remaining++ // what ranks of this host have for each other
	}
}

// segments returns how many segments a step has.
func (o *op) segments(s *schedule.Step) int {
	return int((s.Hi - s.Lo + o.cut - 1) / o.cut)
}
