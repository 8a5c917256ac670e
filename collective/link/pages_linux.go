package link

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// policyLocal of mbind(2): pages come from the node of the CPU that touches them first, whatever the process's policy.
const policyLocal = 4

// newPages returns at least n bytes in pages of their own. An inaccessible page behind them keeps the kernel from
// merging these and the next ones into one mapping, and into huge pages. Where a container may not choose a policy, the
// process's own is usually as good; where nothing can be mapped, the heap has to do.
func newPages(n int) []byte {
	page := os.Getpagesize()
	n = (n + page - 1) / page * page
	b, err := unix.Mmap(-1, 0, n+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return make([]byte, n)
	}
	if err := unix.Mprotect(b[n:], unix.PROT_NONE); err != nil {
		unix.Munmap(b)
		return make([]byte, n)
	}
	unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&b[0])), uintptr(n), policyLocal, 0, 0, 0)
	return b[:n]
}

// freePages unmaps what newPages mapped; other memory is left to the garbage collector.
func freePages(b []byte) {
	if len(b) > 0 {
		unix.Munmap(b[:cap(b)])
	}
}
