package collective

// AddGroup makes a group of some ranks, as process sets will.
func (e *Engine) AddGroup(id uint32, ranks []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := newGroup(e.world, id, ranks); g != nil {
		e.table.groups[id] = g
	}
}
