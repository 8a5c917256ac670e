package link

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// policyLocal of mbind(2): pages come from the node of the CPU that touches them first, whatever policy the process has.
const policyLocal = 4

// newPages returns at least n bytes in pages of their own. A page behind them that cannot be touched keeps the kernel from
// making one mapping, and huge pages, of these and the next ones. Where a container may not choose a policy, that of the process is
// as good unless somebody has set it; where nothing can be mapped, the heap has to do.
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

// freePages unmaps what newPages mapped; other memory is left to the collector.
func freePages(b []byte) {
	if len(b) > 0 {
		unix.Munmap(b[:cap(b)])
	}
}
