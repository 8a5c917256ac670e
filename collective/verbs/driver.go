package verbs

import (
	"errors"
	"sync/atomic"
	"time"
)

// errHangs means that a device's driver has not returned in time.
var errHangs = errors.New("the RDMA device does not answer; see dmesg")

// call runs do, which calls a device's driver: nothing can interrupt that. If do takes longer than Config.Driver, call
// returns errHangs, and undo runs once do has returned. Until then no other stream gets a queue pair.
func (t *Transport) call(do func() error, undo func()) error {
	var settled atomic.Bool // do has returned in time, or is late: whichever comes first
	result := make(chan error, 1)
	t.goes.Go(func() {
		err := do()
		if settled.CompareAndSwap(false, true) {
			result <- err
			return
		}
		undo()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.hanging--
	})
	limit := time.NewTimer(t.cfg.Driver)
	defer limit.Stop()
	select {
	case err := <-result:
		return err
	case <-limit.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !settled.CompareAndSwap(false, true) {
		return <-result
	}
	t.hanging++
	return errHangs
}
