package collective

import "slices"

// Groups that only their members know of, as torch.distributed makes them: no other rank is asked or notified. The
// members agree on a number beforehand, and each of them declares the group under it. A host notifies the other hosts
// of the group when the first of its ranks does, before any other message about the group, so that the group is there
// wherever it is mentioned. There is nothing to wait for.
//
// They last as long as the world. Like pairs they are marked by a bit in their numbers.

// declare takes a rank's word for a group: an AddGroup with a number. It ends at once.
func (e *Engine) declare(rank int, r Request) error {
	e.mu.Lock()
	if err := e.enter(rank, &r); err != nil {
		e.mu.Unlock()
		return err
	}
	e.settle()
	r.Client.Complete(r.Handle, Result{Rows: []int{int(r.Group)}})
	return nil
}

// enter makes the group that a rank declares, if it is not there, and notifies the other hosts. mu is held.
func (e *Engine) enter(rank int, r *Request) *Error {
	if err := e.refusal(r); err != nil {
		return err
	}
	id, ranks := r.Group, slices.Clone(r.Shape)
	slices.Sort(ranks)
	d := e.groups
	switch {
	case r.Client == nil:
		return refuse("%s: no client to tell", r.Kind)
	case id&^(declared-1) != declared:
		return refuse("%s: %d is no number that ranks can choose", r.Kind, id)
	case d.byID[0] == nil || !slices.Contains(d.byID[0].local(), rank) || !slices.Contains(ranks, rank):
		return refuse("%s: rank %d is not in it", r.Kind, rank)
	}
	if err := checkMembers(d.byID[0], ranks); err != nil {
		return err
	}
	if err := d.know(id, ranks); err != nil {
		return err
	}
	if g := d.byID[id]; !g.notified {
		g.notified = true
		e.ops.report(event{send: shortMessage(msgDeclare, 0, append([]int{int(id)}, ranks...)...), to: g.hosts})
	}
	return nil
}

// hear takes another host's word for a group.
func (d *directory) hear(peer int, id uint32, ranks []int) error {
	world := d.byID[0]
	if world == nil || id&^(declared-1) != declared || !slices.IsSorted(ranks) || checkMembers(world, ranks) != nil {
		return errMessage
	}
	at := world.position(peer)
	if at < 0 || !slices.ContainsFunc(world.hosts[at].Ranks, func(rank int) bool { return slices.Contains(ranks, rank) }) {
		return errPeer
	}
	if err := d.know(id, ranks); err != nil {
		return err
	}
	return nil
}
