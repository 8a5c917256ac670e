//go:build rdma && linux && (amd64 || arm64)

package ibverbs

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// poller waits for a descriptor of the library in Go's poller.
type poller struct {
	file *os.File
	raw  syscall.RawConn
}

// newPoller returns one for the descriptor whose number lies at an address. The library keeps its own.
func newPoller(at uintptr) (p poller, err error) {
	own, err := unix.FcntlInt(uintptr(int32(native.Uint32(memory(at, 4)))), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return p, fmt.Errorf("copy descriptor: %w", err)
	}
	if err := unix.SetNonblock(own, true); err != nil {
		unix.Close(own)
		return p, fmt.Errorf("set descriptor non-blocking: %w", err)
	}
	p.file = os.NewFile(uintptr(own), "verbs")
	if p.raw, err = p.file.SyscallConn(); err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // fails if the poller cannot have it
	}
	if err != nil {
		p.file.Close()
		return poller{}, err
	}
	return p, nil
}

// wait calls take once the descriptor can be read. It fails after end.
func (p poller) wait(take func()) error {
	return p.raw.Read(func(fd uintptr) bool {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(ready, 0); n == 0 || err == unix.EINTR {
			return false
		}
		take()
		return true
	})
}

// end ends wait, now and in future. Any goroutine may call it.
func (p poller) end() { p.file.SetReadDeadline(time.Unix(1, 0)) }

func (p poller) close() {
	if p.file != nil {
		p.file.Close()
	}
}
