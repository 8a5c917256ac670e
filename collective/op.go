package collective

import (
	"sync"
	"sync/atomic"
	"time"

	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/collective/schedule"
)

// op is one use of a name, from the first part or ready message to the last acknowledgement. Ops are
// pooled with everything they hold, so that a job that repeats itself allocates nothing.
type op struct {
	engine *Engine

	// Negotiation: guarded by Engine.mu, and constant once the op started.
	group       *group
	epoch       uint32
	cost        schedule.Cost // of the world
	inWords     bool          // an allreduce whose parts came with the ready messages
	id          uint64
	name        string
	reqs        []Request // of the local ranks
	splits      [][]int   // the memory of theirs
	have        []bool
	parts       int
	held        bool    // complete while operations pause: not declared yet
	lasts       int     // place in table.lasting
	waiting     []early // for the use after this one, of ranks that had joined (join.go)
	votes, next []vote  // by position: for this use of the name, and for the one after it
	voted       int
	ahead       int
	gen         uint32
	since       time.Time // when Pending first saw it
	began       time.Time // when all hosts had told that their ranks were ready

	// Layout: written before started is set, constant until the op is recycled.
	kind    Kind
	size    int64 // of the op's buffer
	steps   []schedule.Step
	cut     int64   // bytes of a segment
	chained bool    // there are receives that come after another step
	first   []int   // per step: index of its first segment in seen and done
	source  []int   // per step: local rank whose input a Part step of an allgather or alltoall sends
	base    []int64 // Alltoall, per step: where its bytes are in that input, or in acc
	starts  []int64
	blocks  []schedule.Block
	ins     [][]byte
	outs    [][]byte
	copies  [][]byte    // results besides acc
	acc     []byte      // partials and results: an output, the root's input, or buffer
	raw     []byte      // the only local input, where it can be sent as it is
	slots   []byte      // Collect: the parts of all positions
	slot    int64       // bytes per slot
	buffer  Buffer      // of the kinds that bring their own result memory
	late    bool        // there is none for what passes through now, but there will be
	holder  int         // local rank whose memory is sent from, or nobody, or everybody
	mid     kernel.Plan // own part into a partial
	last    kernel.Plan // own part into a partial that becomes the result
	combine kernel.Plan // all parts into the result
	join    kernel.Plan // two partials into one
	climb   climb       // of an Adasum
	coded   coded
	results []Result // of the local ranks, without Buffer
	shapes  []int    // the memory of theirs
	rows    []int    // the same
	zeros   []byte   // Allreduce: the part of ranks that joined
	other   Request  // Allreduce: what ranks of another host submitted, if all of this one joined

	foreseen atomic.Int64 // bytes of the tensor, -1 if they are not known yet; set with this host's vote

	mu        sync.Mutex
	started   bool
	stash     []stashed // segments that came before the last ready message
	stashed   int64     // their bytes
	seen      []uint64  // bit per received segment
	done      []uint64  // bit per segment that is done and what waited for it queued, if chained
	undone    []int32   // per step: segments that are not done
	open      []int32   // the same, but until what waited for them is queued
	early     []arrival // segments whose turn has not come
	missing   []int32   // Collect: parts missing per segment
	queued    []int32   // per position: segments still to be queued
	remaining int       // segments to make or to receive, slices to reduce, and one until all is queued
	unacked   int       // segments in the holder's memory that a peer may not have
	inflight  int       // segments the link holds
	busy      int       // kernels at work
	dead      bool      // aborted
	err       *Error
	stage     stage

	// Local slices, guarded by workers.mu.
	cursor int64
	ticket uint64
}

// stage is how far the end of an op has come.
type stage uint8

const (
	open    stage = iota
	telling       // somebody tells the ranks
	told          // all but the holder know
	freeing       // somebody tells the holder
	freed         // all ranks know, the link may still hold segments
	pooled
)

// stashed is a segment that waits for the start of its op.
type stashed struct {
	peer    int
	header  link.Header
	payload *[]byte // of Engine.buffers
}

// announced returns what the op is as far as anyone has said.
func (o *op) announced() Kind {
	for i := range o.reqs {
		if o.have[i] {
			return o.reqs[i].Kind
		}
	}
	for i := range o.votes {
		if v := &o.votes[i]; v.set && v.real() {
			return v.kind()
		}
	}
	return 0
}

// agreed reports whether all local ranks submitted the same.
func (o *op) agreed() bool {
	for i := 1; i < len(o.reqs); i++ {
		if !o.reqs[0].agrees(&o.reqs[i]) {
			return false
		}
	}
	return true
}

// put takes a local rank's part.
func (o *op) put(index int, r *Request) {
	o.reqs[index], o.have[index] = *r, true
	o.splits[index] = append(o.splits[index][:0], r.Splits...)
	o.reqs[index].Splits = o.splits[index]
	o.parts++
}

// reset makes a pooled op an empty one for a name.
func (o *op) reset(g *group, epoch uint32, id uint64, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.group, o.epoch, o.id, o.name = g, epoch, id, name
	o.reqs = resize(o.reqs, len(g.local()))
	o.have = resize(o.have, len(g.local()))
	o.splits = resize(o.splits, len(g.local()))
	clear(o.have)
	o.votes = resize(o.votes, len(g.hosts))
	o.next = resize(o.next, len(g.hosts))
	for i := range o.votes {
		o.votes[i].clear()
		o.next[i].clear()
	}
	o.parts, o.voted, o.ahead, o.gen, o.since, o.inWords, o.held = 0, 0, 0, 0, time.Time{}, false, false
	o.started, o.dead, o.err = false, false, nil
	o.stage = open
	o.remaining, o.unacked, o.inflight, o.busy = 0, 0, 0, 0
	o.stash, o.early, o.stashed = o.stash[:0], o.early[:0], 0
}

// forget drops what would keep the memory of a finished op's ranks alive.
func (o *op) forget() {
	clear(o.reqs)
	clear(o.ins)
	clear(o.outs)
	clear(o.copies)
	clear(o.stash)
	clear(o.results)
	clear(o.waiting)
	o.waiting = o.waiting[:0]
	o.base = o.base[:0]
	o.acc, o.raw, o.buffer, o.group = nil, nil, nil, nil
}

// resize returns s with n elements, with the old ones where there is room.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return append(s[:cap(s)], make([]T, n-cap(s))...)
	}
	return s[:n]
}

// settle acts on what changed: it tells the ranks once the result is there, tells the holder once the
// peers have its memory, and recycles the op once the link holds nothing of it. It is called with o.mu
// held, by whoever changed a counter, as the last thing; it releases the lock.
func (o *op) settle() {
	for {
		switch {
		case o.stage == open && (o.remaining == 0 || o.dead && o.busy == 0):
			o.stage = telling
			o.mu.Unlock()
			if d, ok := o.buffer.(*detour); ok {
				d.ended()
			}
			// The name must be free before anyone hears of the end and uses it again.
			o.engine.remove(o)
			for i := range o.reqs {
				if !o.holds(i) {
					o.tell(i)
				}
			}
			o.mu.Lock()
			o.stage = told
		case o.stage == told && (o.unacked == 0 || o.dead):
			o.stage = freeing
			o.mu.Unlock()
			for i := range o.reqs {
				if o.holds(i) {
					o.tell(i)
				}
			}
			o.mu.Lock()
			o.stage = freed
		case o.stage == freed && (o.inflight == 0 || o.dead):
			o.stage = pooled
			dead := o.dead
			o.mu.Unlock()
			if o.buffer != nil {
				o.buffer.Release()
			}
			// The link may still refer to an aborted op.
			if !dead {
				if len(o.votes) > 1 {
					o.engine.finished(o)
				}
				o.engine.recycle(o)
			}
			return
		default:
			o.mu.Unlock()
			return
		}
	}
}

// Values of op.holder that are no rank.
const (
	nobody    = -1
	everybody = -2
)

// holds reports whether segments are sent from the memory of a local rank.
func (o *op) holds(index int) bool { return o.holder == index || o.holder == everybody }

// tell ends a local rank's request.
func (o *op) tell(index int) {
	if !o.have[index] {
		return // it joined
	}
	r := &o.reqs[index]
	res := o.results[index]
	switch {
	case o.err != nil:
		res = Result{Err: o.err}
	case o.buffer != nil:
		o.buffer.Retain()
		res.Buffer = o.buffer
	}
	res.Took = time.Since(o.began)
	r.Client.Complete(r.Handle, res)
}

// fail ends an op that did not start. It is not pooled again: a late segment may still look at it.
func (o *op) fail(err *Error) {
	o.mu.Lock()
	o.dead = true
	o.unstash()
	o.mu.Unlock()
	for i, have := range o.have {
		if have {
			o.reqs[i].Client.Complete(o.reqs[i].Handle, Result{Err: err})
		}
	}
}

// abort ends an op in whatever state it is. Kernels at work finish first.
func (o *op) abort(err *Error) {
	for _, w := range o.waiting {
		w.req.Client.Complete(w.req.Handle, Result{Err: err})
	}
	o.mu.Lock()
	o.dead = true
	if !o.started {
		o.mu.Unlock()
		o.fail(err)
		return
	}
	if o.stage == open {
		o.err = err // later ones have their result
	}
	o.settle()
}
