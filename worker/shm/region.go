// Package shm holds the memory that the daemon shares with the ranks of its host: sealed memfds, which have
// no name in any file system and vanish with the last process that maps them.
//
// It starts no goroutine. It does not decide who may see which region: that is the session's business.
package shm

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Granule is what sizes of regions are rounded up to: a huge page, where the kernel gives them to shared memory.
const Granule = 2 << 20

// ErrLimit says that a region does not fit into its Budget.
var ErrLimit = errors.New("memory limit reached")

// Budget bounds the bytes of the regions that were charged to it. A region counts until it is unmapped, not
// merely until its owner gave it back.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Used returns the bytes charged now.
func (b *Budget) Used() int64 { return b.used.Load() }

func (b *Budget) take(n int64) bool {
	for {
		used := b.used.Load()
		if n > b.limit-used {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (b *Budget) give(n int64) { b.used.Add(-n) }

// Region is one piece of shared memory, mapped writable in this process. Its size is sealed: no process that
// has it can shrink it, so that reading it never faults, however hostile the others are.
//
// A region starts with one reference and is unmapped when the last one is released.
type Region struct {
	budget *Budget
	data   []byte
	refs   atomic.Int32
	fd     int // to pass on to ranks
}

// Create returns a new, zeroed region of at least n bytes. The descriptor that ranks get can be mapped writable
// by them.
func Create(b *Budget, name string, n int64) (*Region, error) {
	return create(b, name, n, false)
}

// CreateReadOnly is Create for memory that ranks shall only read.
func CreateReadOnly(b *Budget, name string, n int64) (*Region, error) {
	return create(b, name, n, true)
}

// CreateSmall returns a new, zeroed region of n bytes and no more, for which there is no Budget: the caller bounds how many
// there are. Ranks can write to it.
func CreateSmall(name string, n int64) (*Region, error) {
	return charge(NewBudget(n), name, n, false)
}

func create(b *Budget, name string, n int64, readOnly bool) (*Region, error) {
	if n < 0 || n > b.limit {
		return nil, fmt.Errorf("create region of %d bytes: %w (%d bytes)", n, ErrLimit, b.limit)
	}
	return charge(b, name, max(1, (n+Granule-1)/Granule)*Granule, readOnly)
}

// charge creates a region of exactly that size.
func charge(b *Budget, name string, size int64, readOnly bool) (*Region, error) {
	if !b.take(size) {
		return nil, fmt.Errorf("create region of %d bytes: %w (%d of %d bytes used)", size, ErrLimit, b.used.Load(), b.limit)
	}
	fd, data, err := sealed(name, size)
	if err != nil {
		b.give(size)
		return nil, fmt.Errorf("create region of %d bytes: %w", size, err)
	}
	r := &Region{budget: b, data: data, fd: fd}
	r.refs.Store(1)
	if readOnly {
		if err := r.reopen(); err != nil {
			r.Release()
			return nil, fmt.Errorf("create region of %d bytes: %w", size, err)
		}
	}
	return r, nil
}

// sealed returns a memfd of that size that can neither shrink nor grow, and its mapping.
func sealed(name string, size int64) (fd int, data []byte, err error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // kernels before 6.3 do not know MFD_NOEXEC_SEAL
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, nil, os.NewSyscallError("memfd_create", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if err := unix.Ftruncate(fd, size); err != nil {
		if limit := new(unix.Rlimit); err == unix.EFBIG && unix.Getrlimit(unix.RLIMIT_FSIZE, limit) == nil {
			return -1, nil, fmt.Errorf("ulimit -f is %d KiB, also for shared memory: %w", limit.Cur>>10, err)
		}
		return -1, nil, os.NewSyscallError("ftruncate", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return -1, nil, os.NewSyscallError("seal", err)
	}
	data, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return -1, nil, os.NewSyscallError("mmap", err)
	}
	return fd, data, nil
}

// reopen replaces the descriptor by one that cannot be mapped writable. It guards against a rank's mistakes; a
// process of the same user that wants to can always get at this memory.
func (r *Region) reopen() error {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(r.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("reopen read-only", err)
	}
	unix.Close(r.fd)
	r.fd = fd
	return nil
}

// Bytes returns the memory. It must not be touched after the reference that allowed it was released.
func (r *Region) Bytes() []byte { return r.data }

// Size returns the bytes of the region.
func (r *Region) Size() int64 { return int64(len(r.data)) }

// FD returns the descriptor to pass to ranks, valid while the caller has a reference.
func (r *Region) FD() int { return r.fd }

// Retain adds a reference; the caller must already have one.
func (r *Region) Retain() {
	if r.refs.Add(1) <= 1 {
		panic("shm: region retained after its last release")
	}
}

// Release drops a reference; the last one unmaps the memory here. Ranks that mapped it keep it until they
// unmap it or end.
func (r *Region) Release() {
	switch n := r.refs.Add(-1); {
	case n > 0:
	case n < 0:
		panic("shm: region released too often")
	default:
		size := r.Size()
		unix.Munmap(r.data)
		unix.Close(r.fd)
		r.data, r.fd = nil, -1
		r.budget.give(size)
	}
}
