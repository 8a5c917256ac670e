package proc

import (
	"runtime"
	"testing"

	"gorun/contrib/must"

	"golang.org/x/sys/unix"
)

// A thread that is bound runs on its CPU, and others do not mind.
func TestBindThread(t *testing.T) {
	var all unix.CPUSet
	must.Do(t, unix.SchedGetaffinity(0, &all))
	cpu := 0
	for !all.IsSet(cpu) {
		cpu++
	}
	bound := make(chan error)
	var mine unix.CPUSet
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := BindThread([]int{cpu})
		if err == nil {
			err = unix.SchedGetaffinity(0, &mine)
		}
		bound <- err
	}()
	must.Do(t, <-bound)
	if mine.Count() != 1 || !mine.IsSet(cpu) {
		t.Errorf("the thread may run on %d CPUs, should be on %d only", mine.Count(), cpu)
	}
	var now unix.CPUSet
	if err := unix.SchedGetaffinity(0, &now); err != nil || now != all {
		t.Errorf("the other thread may run on %d CPUs, not on %d (%v)", now.Count(), all.Count(), err)
	}
	if err := BindThread(nil); err == nil {
		t.Error("a thread is bound to no CPU at all")
	}
}
