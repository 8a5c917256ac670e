package counters

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Writer is the rank's end of a page, for ranks in Go; bindings in other languages have their own. The zero value counts
// nothing. One goroutine uses it.
type Writer struct {
	page []byte
	zero time.Time // when the clock of stamps was at zero: time.Now reads that clock without a system call
}

// Open opens the page that the path in GORUN_COUNTERS names, and begins to count. A rank without one counts nothing.
func Open(path string) (w Writer, err error) {
	if path == "" {
		return w, nil
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return w, fmt.Errorf("open counters: %w", os.NewSyscallError("open", err))
	}
	defer unix.Close(fd)
	if w.page, err = unix.Mmap(fd, 0, Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return w, fmt.Errorf("open counters: %w", os.NewSyscallError("mmap", err))
	}
	w.zero = time.Now().Add(-monotonic())
	if atomic.LoadUint64(w.word(AtBegan)) == 0 {
		w.set(AtBegan, uint64(w.now()))
	}
	return w, nil
}

// word returns a counter. Pages are aligned, and so are offsets; ranks run on little-endian machines.
func (w Writer) word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&w.page[at])) }

func (w Writer) set(at int, n uint64) { atomic.StoreUint64(w.word(at), n) }

func (w Writer) add(at int, n uint64) { w.set(at, *w.word(at)+n) }

// monotonic is the clock of all stamps.
func monotonic() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // fails for no clock that there is
	return time.Duration(t.Nano())
}

// now is the same clock, of a page that is open.
func (w Writer) now() time.Duration { return time.Since(w.zero) }

// Waits notes that the rank waits for an operation, and returns the time.
func (w Writer) Waits() (began time.Duration) {
	if w.page == nil {
		return 0
	}
	began = w.now()
	w.set(AtSince, uint64(began))
	w.set(AtActivity, uint64(WaitingInGorun))
	return began
}

// Waited counts a wait that Waits began. The operation ran for took once all ranks had come.
func (w Writer) Waited(began, took time.Duration) {
	if w.page == nil {
		return
	}
	blocked := w.now() - began
	seen := min(blocked, took)
	w.add(AtOthers, uint64(blocked-seen))
	w.add(AtCommunication, uint64(seen))
	w.add(AtHidden, uint64(took-seen))
	w.add(AtOperations, 1)
	w.set(AtActivity, uint64(Computing))
}

// Missed counts a wait that Waits began, for ranks of which not all came. It counts no operation: the daemon carries that
// out, and the wait for it counts it.
func (w Writer) Missed(began time.Duration) { w.end(AtOthers, began) }

// Moved counts the time since Waits in which this rank reduced with the others, after all had come.
func (w Writer) Moved(began time.Duration) { w.end(AtCommunication, began) }

func (w Writer) end(at int, began time.Duration) {
	if w.page == nil {
		return
	}
	w.add(at, uint64(w.now()-began))
	w.set(AtActivity, uint64(Computing))
}

// Close ends counting.
func (w *Writer) Close() {
	if w.page != nil {
		unix.Munmap(w.page)
		w.page = nil
	}
}
