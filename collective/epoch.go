package collective

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gorun/collective/schedule"
)

// SetWorld begins an epoch: the engine hears other hosts, and takes what ranks submit. It is an error while
// operations of the last one are open.
func (e *Engine) SetWorld(w EngineWorld) error {
	if err := w.check(); err != nil {
		return fmt.Errorf("set world of epoch %d: %w", w.Epoch, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range e.ops.open {
		if !o.alone() { // those end by themselves
			return fmt.Errorf("set world of epoch %d: operations of epoch %d are open", w.Epoch, e.world.Epoch)
		}
	}
	if len(w.Hosts) > 1 && e.cfg.Transport == nil {
		return fmt.Errorf("set world of epoch %d: %d hosts and no transport", w.Epoch, len(w.Hosts))
	}
	e.world, e.stopped = w, nil
	e.cost = cmp.Or(w.Cost, e.cfg.Cost)
	e.epoch.Store(w.Epoch)
	e.groups, e.paused = newDirectory(w), paused{}
	e.ops = operations{open: map[uint64]*op{}, fresh: e.fresh, recorder: e.recorder}
	e.negotiation = &readiness{operations: &e.ops, groups: e.groups, inlines: inlining{fits: e.mayInline},
		room: uint64(max(e.cfg.Room, 0))}
	e.channels = map[int]*channel{}
	for i, h := range w.Hosts {
		if i != w.Self {
			e.channels[h.ID] = &channel{}
		}
	}
	return nil
}

// SetCost sets what a message between two hosts of the world costs, the same on all of them, before a rank of
// this host submits anything; others may have.
func (e *Engine) SetCost(c schedule.Cost) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cost = cmp.Or(c, e.cfg.Cost)
	for _, o := range e.ops.open {
		o.cost = e.cost
	}
}

// Leave reports that a local rank of the world of epoch takes part in nothing any more, because it left or its
// process ended.
// Operations that its host did not declare ready yet fail on all ranks, on its own too.
// Operations that are under way go on and still complete at its client.
func (e *Engine) Leave(epoch uint32, rank int) {
	e.mu.Lock()
	e.recorder.tick()
	if e.stopped != nil || epoch != e.world.Epoch || !slices.Contains(e.world.Hosts[e.world.Self].Ranks, rank) {
		e.mu.Unlock()
		return
	}
	if e.paused.number > 0 {
		e.paused.leaving = append(e.paused.leaving, rank)
		e.mu.Unlock()
		return
	}
	e.negotiation.leave(rank)
	e.announce(shortMessage(msgLeave, 0, rank))
	e.settle()
}

// Abort fails every open operation and refuses new ones until the next SetWorld. The links must have let
// go of all segments before it, of those they send and of those they read: ranks get their memory back at
// once. What is reduced on this host alone ends normally.
func (e *Engine) Abort(err *Error) {
	e.mu.Lock()
	e.stopped, e.past = err, err
	e.recorder.tick()
	var open []*op
	for id, o := range e.ops.open {
		if o.alone() {
			continue
		}
		open = append(open, o)
		e.recorder.ended(o, true)
		delete(e.ops.open, id)
	}
	// No peer acknowledges any more what these sent: their ranks, and their memory, would wait for ever.
	open = append(open, e.ops.lasting...)
	e.ops.lasting = nil
	e.mu.Unlock()
	slices.SortFunc(open, func(a, b *op) int { return strings.Compare(a.name, b.name) })
	for _, o := range open {
		o.abort(err)
	}
}

// Close fails what is open and returns after Run did.
func (e *Engine) Close() {
	e.Abort(&Error{Code: CodeAborted, Text: "the engine was closed"})
	e.workers.stop()
	e.workers.wait()
}
