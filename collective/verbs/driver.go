package verbs

import (
	"errors"
	"sync"
	"time"
)

// errHangs means that a device's driver has not returned in time.
var errHangs = errors.New("the RDMA device does not answer; see dmesg")

// call runs do, which calls a device's driver: nothing can interrupt that. If do takes longer than Config.Driver, call
// returns errHangs, and undo runs once do has returned. Until then no other stream gets a queue pair.
func (t *Transport) call(do func() error, undo func()) error {
	var mu sync.Mutex
	late := false
	result := make(chan error, 1)
	t.goes.Go(func() {
		err := do()
		mu.Lock()
		defer mu.Unlock()
		if !late {
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
	mu.Lock()
	defer mu.Unlock()
	select {
	case err := <-result:
		return err
	default:
	}
	late = true
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hanging++
	return errHangs
}
