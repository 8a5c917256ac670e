package counters

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Page is the memory of one rank's counters. It belongs to one goroutine.
type Page struct {
	fd   int
	data []byte
}

// NewPage makes a page whose size is sealed: no process can shrink it, so that reading it never faults.
func NewPage() (*Page, error) {
	fd, err := unix.MemfdCreate("gorun-counters", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make counters: %w", os.NewSyscallError("memfd_create", err))
	}
	p := &Page{fd: fd}
	if err = unix.Ftruncate(fd, Size); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		p.data, err = unix.Mmap(fd, 0, Size, unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make counters: %w", err)
	}
	return p, nil
}

// Path returns where processes of the same user can open the page, as long as this process has it.
func (p *Page) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.fd) }

// Read returns what the rank has counted so far.
func (p *Page) Read() Counts {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return Counts{}
	}
	return Decode(p.data, time.Duration(now.Nano()))
}

// Close gives the memory back.
func (p *Page) Close() {
	unix.Munmap(p.data)
	unix.Close(p.fd)
	p.data = nil
}
