package collective

// Groups come and go by operations of all ranks of the world; groups that only their members know of are in
// declare.go. These operations share one name, so that there is only one of them at a time and all hosts see them in
// the same order: counting is enough to give a group the same number everywhere, and no host has to assign numbers.
//
// A host that has carried out AddGroup may declare operations of the group before another host has heard that all
// agree. The late host keeps the messages of that channel, in order, until it has the group too (early). There is at
// most one such group: the next one needs the late host.
//
// When a host carries out RemoveGroup it has heard everything that any host declared about the group before: a rank
// that has submitted the removal can submit nothing more in the group, unless the removal fails. An operation that all
// ranks submitted before they removed the group has started by then, and ends as usual; one that has not started never
// can, and fails. Contributions that follow a started operation (Request.Follows) come later, on each host once that
// operation has ended there. The group stays until all of them have come.

// addGroup makes a group that all hosts agreed on, and hears what peers declared in it before.
func (e *Engine) addGroup(epoch uint32, ranks []int) uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped != nil || e.world.Epoch != epoch {
		return 0 // no rank waits for it any more
	}
	id := e.groups.add(newGroup(e.world, e.groups.next, ranks), ranks)
	e.listenAll()
	return id
}
