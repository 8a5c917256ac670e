package shm

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"gorun/collective"
)

const (
	minSlot = 4 << 10
	// A slot of bigSlot bytes or more that was not used during the last idleAllocs allocations gives its pages
	// back; smaller ones are not worth the system call. At the limit, those of evictable bytes do too. Slots
	// from that size on start and end at a page's border, whatever the page size.
	bigSlot    = 1 << 20
	evictable  = 256 << 10
	idleAllocs = 512
)

// Pool hands out result memory that all ranks of the host may read. Slots of a few sizes are cut from read-only
// regions and used again; a region stays for the life of the pool, because ranks keep it mapped, but a big slot
// that is idle costs no memory. Safe for concurrent use.
//
// Cost of Alloc and the last Release in steady state: one lock each, no system call, no garbage.
type Pool struct {
	budget *Budget // of pages that slots may hold
	space  *Budget // of addresses; a bound that only a bug reaches

	mu      sync.Mutex
	allocs  uint64
	classes [classes]class
	regions []*Region
	closed  bool
}

const maxSpace = 1 << 46

// Slot sizes are the powers of two and three steps between each two of them: at most a quarter is wasted.
const (
	steps   = 4
	classes = 40 * steps
)

type class struct {
	free []*Slot // the most recently used one, whose pages are hot, is last
}

// NewPool returns a pool that uses at most limit bytes.
func NewPool(limit int64) *Pool {
	return &Pool{budget: NewBudget(min(limit, maxSpace)), space: NewBudget(maxSpace)}
}

// Room returns the bytes of the largest result that there can be.
func (p *Pool) Room() int64 {
	n := p.budget.limit
	return n &^ (1<<(bits.Len64(uint64(n))-1)/steps - 1)
}

// Slot is one buffer of a Pool. It implements collective.Buffer.
type Slot struct {
	pool   *Pool
	region *Region
	number uint32
	class  int
	offset int
	room   []byte // the whole slot
	n      int    // bytes in use
	refs   atomic.Int32

	backed bool   // pages are charged to the pool
	used   uint64 // Pool.allocs at the last use
}

var _ collective.Buffer = (*Slot)(nil)

// Bytes returns the memory that was asked for.
func (s *Slot) Bytes() []byte { return s.room[:s.n:s.n] }

// Region returns the region that the slot lies in, its number and the slot's offset.
func (s *Slot) Region() (r *Region, number uint32, offset int) { return s.region, s.number, s.offset }

// Retain adds a reference; the caller must already have one.
func (s *Slot) Retain() {
	if s.refs.Add(1) <= 1 {
		panic("shm: result retained after its last release")
	}
}

// Release drops a reference; the last one makes the memory available again.
func (s *Slot) Release() {
	switch n := s.refs.Add(-1); {
	case n > 0:
	case n < 0:
		panic("shm: result released too often")
	default:
		s.pool.put(s)
	}
}

// Alloc returns a buffer of n bytes, its contents undefined, with one reference.
func (p *Pool) Alloc(n int) (collective.Buffer, error) {
	if n < 0 || int64(n) > p.budget.limit {
		return nil, fmt.Errorf("allocate result of %d bytes: %w (%d bytes)", n, ErrLimit, p.budget.limit)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("allocate result of %d bytes: pool is closed", n)
	}
	p.allocs++
	if p.allocs%(idleAllocs/4) == 0 {
		p.evictLocked(bigSlot, p.allocs-min(p.allocs, idleAllocs))
	}
	c, size := classOf(n)
	if len(p.classes[c].free) == 0 {
		if err := p.extendLocked(c, size); err != nil {
			return nil, fmt.Errorf("allocate result of %d bytes: %w", n, err)
		}
	}
	free := p.classes[c].free
	s := free[len(free)-1]
	if !s.backed && !p.budget.take(int64(size)) {
		p.evictLocked(evictable, p.allocs)
		if !p.budget.take(int64(size)) {
			return nil, fmt.Errorf("allocate result of %d bytes: %w (%d of %d bytes used)", n, ErrLimit, p.budget.Used(),
				p.budget.limit)
		}
	}
	p.classes[c].free = free[:len(free)-1]
	s.backed, s.n, s.used = true, n, p.allocs
	s.refs.Store(1)
	s.region.Retain()
	return s, nil
}

// classOf returns the smallest class that holds n bytes, and the size of its slots.
func classOf(n int) (c, size int) {
	n = max(n, minSlot)
	top := bits.Len(uint(n-1)) - 1 // 2^top < n ≤ 2^(top+1), or n is minSlot
	step := 1 << top / steps
	i := (n - 1<<top + step - 1) / step // steps above 2^top, 1…steps
	return (top-bits.Len(minSlot)+2)*steps + i, 1<<top + i*step
}

// extendLocked maps a region of slots of class c.
func (p *Pool) extendLocked(c, size int) error {
	count := max(1, Granule/size)
	r, err := CreateReadOnly(p.space, "gorun-result", int64(count*size))
	if err != nil {
		return err
	}
	number := uint32(len(p.regions))
	p.regions = append(p.regions, r)
	for i := count - 1; i >= 0; i-- {
		at := i * size
		p.classes[c].free = append(p.classes[c].free,
			&Slot{pool: p, region: r, number: number, class: c, offset: at, room: r.data[at : at+size : at+size]})
	}
	return nil
}

// evictLocked gives back the pages of free slots of least bytes or more that were not used after since. Ranks
// still map them, which costs nothing.
func (p *Pool) evictLocked(least int, since uint64) {
	c, _ := classOf(least)
	for ; c < classes; c++ {
		for _, s := range p.classes[c].free {
			if s.backed && s.used <= since && unix.Madvise(s.room, unix.MADV_REMOVE) == nil {
				s.backed = false
				p.budget.give(int64(len(s.room)))
			}
		}
	}
}

func (p *Pool) put(s *Slot) {
	p.mu.Lock()
	if !p.closed {
		p.classes[s.class].free = append(p.classes[s.class].free, s)
	}
	p.mu.Unlock()
	s.region.Release()
}

// Resident returns the bytes whose pages the pool holds, in use or ready for use.
func (p *Pool) Resident() int64 { return p.budget.Used() }

// Close unmaps everything that is not in use; what is in use follows with its last Release.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	for c := range p.classes {
		p.classes[c].free = nil
	}
	for _, r := range p.regions {
		r.Release()
	}
	p.regions = nil
}
