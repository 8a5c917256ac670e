package collective

import "time"

// enter begins work of an op that was counted in remaining; false if the op was aborted.
func (o *op) enter() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead {
		return false
	}
	o.busy++
	return true
}

// leave ends what enter began.
func (o *op) leave() {
	o.mu.Lock()
	o.busy--
	o.remaining--
	o.advance()
}

// advance acts on what changed: it notifies the ranks once the result is there, the holder once the
// peers have its memory, and recycles the op once the link holds nothing of it. The caller
// changed a counter, holds o.mu and does nothing afterwards: advance releases the lock.
func (o *op) advance() {
	for {
		switch {
		case o.stage == open && (o.remaining == 0 || o.dead && o.busy == 0):
			o.stage = completing
			o.mu.Unlock()
			// The name must be free before a rank hears of the end and uses it again.
			o.engine.remove(o)
			o.completeAll(false)
			o.mu.Lock()
			o.stage = completed
		case o.stage == completed && (o.unacked == 0 || o.dead):
			o.stage = freeing
			o.mu.Unlock()
			o.completeAll(true)
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
				if len(o.group.hosts) > 1 {
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

// completeAll ends the requests of all ranks whose memory is sent from, or of all others.
func (o *op) completeAll(holders bool) {
	for i := range o.own.reqs {
		if o.holds(i) == holders {
			o.complete(i)
		}
	}
}

// complete ends a local rank's request.
func (o *op) complete(index int) {
	if !o.own.have[index] {
		return // it joined
	}
	r := &o.own.reqs[index]
	res := o.results.list[index]
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
	o.stash.release(&o.engine.stashed)
	o.mu.Unlock()
	o.own.fail(err)
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
	o.advance()
}

// recycle takes back an op that the link holds nothing of.
func (p *pools) recycle(o *op) {
	o.forget()
	p.free.Put(o)
}
