package counters

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Page is the memory of one rank's counters. It belongs to one goroutine.
type Page struct {
	fd    int
	data  []byte
	ahead time.Duration // by how much the rank's clock is ahead of this process's
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
	return Decode(p.data, time.Duration(now.Nano())+p.ahead)
}

// Follow notes which process writes into the page. Its clock may be another one: a container, or a process that was
// restored from a checkpoint, can have a time namespace of its own.
func (p *Page) Follow(pid int) { p.ahead = offset(strconv.Itoa(pid)) - offset("self") }

// offset returns by how much CLOCK_MONOTONIC of a process is ahead of the kernel's, 0 if it cannot be read. The kernel
// shows the offset for the namespace that the process's children are born into. That is the process's own unless it has
// called unshare.
func offset(process string) time.Duration {
	own, err := os.Readlink("/proc/" + process + "/ns/time")
	if children, _ := os.Readlink("/proc/" + process + "/ns/time_for_children"); err != nil || own != children {
		return 0
	}
	text, err := os.ReadFile("/proc/" + process + "/timens_offsets")
	if err != nil {
		return 0 // it has ended, or the kernel has no such namespaces
	}
	return offsetIn(string(text))
}

// offsetIn finds the offset in a text of the kernel: a line for each clock, with seconds and nanoseconds.
func offsetIn(text string) time.Duration {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "monotonic" {
			continue
		}
		s, err1 := strconv.ParseInt(f[1], 10, 64)
		ns, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 == nil && err2 == nil {
			return time.Duration(s)*time.Second + time.Duration(ns)
		}
	}
	return 0
}

// Close gives the memory back.
func (p *Page) Close() {
	unix.Munmap(p.data)
	unix.Close(p.fd)
	p.data = nil
}
