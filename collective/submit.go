package collective

import (
	"slices"
	"time"
)

// Submit takes a local rank's contribution to an operation. An error is an *Error and refuses this one only;
// if there is none, r.Client hears of the end.
func (e *Engine) Submit(rank int, r Request) error {
	if r.Kind == AddGroup && r.Group != 0 {
		return e.declare(rank, r)
	}
	if r.Kind == Peek {
		return e.peek(rank, r)
	}
	e.mu.Lock()
	e.recorder.tick()
	if err := e.admit(rank, &r); err != nil {
		e.mu.Unlock()
		return err
	}
	e.settle()
	return nil
}

// admit checks a contribution and submits it. mu is held.
func (e *Engine) admit(rank int, r *Request) *Error {
	if err := e.refusal(r); err != nil {
		return err
	}
	if r.Kind == Send || r.Kind == Recv {
		if err := r.pair(rank, e.world.Size); err != nil {
			return err
		}
	} else if r.Group&pairs != 0 {
		return refuse("%s %q: no group %d", r.Kind, r.Name, r.Group)
	}
	g := e.groups.find(r.Group)
	if g == nil {
		return refuse("%s %q: no group %d with a rank on this host", r.Kind, r.Name, r.Group)
	}
	index := slices.Index(g.local(), rank)
	if index < 0 {
		return refuse("%s %q: rank %d is not a rank of group %d on this host", r.Kind, r.Name, rank, r.Group)
	}
	if r.Kind == Join {
		r.stamp = int(time.Now().UnixMicro())
	}
	if err := r.normalize(g, rank); err != nil {
		return err
	}
	r.Coding = e.codingOf(r)
	if err := e.groups.check(r); err != nil {
		return err
	}
	return e.negotiation.submit(g, index, *r)
}

// Resolve reports that a local rank submits nothing under a name that was pending when it joined, or removed a group:
// the contribution is in a result already, or has failed.
func (e *Engine) Resolve(epoch uint32, rank int, group uint32, name string) {
	e.mu.Lock()
	g := e.groups.byID[group]
	if e.stopped != nil || epoch != e.world.Epoch || g == nil {
		e.mu.Unlock()
		return
	}
	if index := slices.Index(g.local(), rank); index >= 0 {
		e.negotiation.resolve(g, index, name)
	}
	e.settle()
}
