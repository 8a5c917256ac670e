package session

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The rank's end of wide slots.

// see maps memory of another rank.
func (l *rankSlots) see(b []byte, fd int) error {
	place, number, size, err := decodeShow(b)
	if err != nil {
		return err
	}
	key := shownRegion{place, number}
	if l == nil || place >= l.ranks || place == l.self || l.seen[key] != nil {
		return malformed("memory %d of rank %d of this host, which it cannot have", number, place)
	}
	data, err := mmap(fd, size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return err
	}
	l.seen[key] = data
	return nil
}

// unsee unmaps memory that its rank has freed.
func (l *rankSlots) unsee(b []byte) error {
	place, number, err := decodeHide(b)
	if err != nil {
		return err
	}
	key := shownRegion{place, number}
	if l == nil || l.seen[key] == nil {
		return malformed("end of memory %d of rank %d of this host, which was not shown", number, place)
	}
	unix.Munmap(l.seen[key])
	delete(l.seen, key)
	return nil
}

func field[T any](l *rankSlots, x *rankSlot, rank, at int) *T {
	return (*T)(unsafe.Pointer(&l.memory[x.at+rank*slotLine+at]))
}

// show lets the others know where this rank's tensors are. They read it once they have seen its word, and this rank does
// not come again before all are done.
func (l *rankSlots) show(x *rankSlot) {
	*field[uint32](l, x, l.self, wideIn) = x.call.In.number()
	*field[uint32](l, x, l.self, wideOut) = x.call.Out.number()
	*field[uint64](l, x, l.self, wideInOffset) = uint64(x.call.In.Offset)
	*field[uint64](l, x, l.self, wideOutOffset) = uint64(x.call.Out.Offset)
}

// tensor is a rank's tensor in this rank's eyes.
func (l *rankSlots) tensor(x *rankSlot, rank, region, offset int) ([]byte, error) {
	number, at := *field[uint32](l, x, rank, region), *field[uint64](l, x, rank, offset)
	b, n := l.seen[shownRegion{rank, number}], uint64(x.call.In.Bytes)
	if uint64(len(b)) < n || at > uint64(len(b))-n || at%uint64(x.call.Type.Size()) != 0 {
		return nil, malformed("tensor of rank %d of this host at %d of %d bytes of region %d", rank, at, len(b), number)
	}
	return b[at : at+n], nil
}

// reduceSlice makes this rank's slice of the result, for all ranks, and says that it did.
func (l *rankSlots) reduceSlice(x *rankSlot) (err error) {
	n := x.call.In.Bytes
	share := ((n+l.ranks-1)/l.ranks + slotLine - 1) &^ (slotLine - 1)
	lo, hi := min(l.self*share, n), min((l.self+1)*share, n)
	l.buffers, l.results = l.buffers[:0], l.results[:0]
	for rank := range l.ranks {
		in, out := x.call.In.bytes(), x.call.Out.bytes()
		if rank != l.self {
			if in, err = l.tensor(x, rank, wideIn, wideInOffset); err != nil {
				return err
			}
			if out, err = l.tensor(x, rank, wideOut, wideOutOffset); err != nil {
				return err
			}
		}
		l.buffers, l.results = append(l.buffers, in[lo:hi]), append(l.results, out[lo:hi])
	}
	x.plan(l.ranks).Reduce(l.results, nil, l.buffers)
	atomic.StoreUint64(field[uint64](l, x, l.self, slotDone), x.use)
	if l.parting(x) != awaited {
		l.rouse()
	}
	return nil
}

// parting is how far the others are with their slices: a rank that ended without its own leaves a result that is none. Those
// that are alive write to this rank's tensor until they are done all the same.
func (l *rankSlots) parting(x *rankSlot) meeting {
	how := complete
	for rank := range l.ranks {
		switch {
		case atomic.LoadUint64(field[uint64](l, x, rank, slotDone)) >= x.use:
		case l.deserted(x, rank):
			how = broken
		default: // it works, or GONE is on its way
			return awaited
		}
	}
	return how
}

// deserted reports whether a rank has left a wide slot without its slice.
func (l *rankSlots) deserted(x *rankSlot, rank int) bool {
	return atomic.LoadUint32(l.flag(rank, slotLeft)) == rankLeft && atomic.LoadUint64(field[uint64](l, x, rank, slotDone)) < x.use
}

// desertion says who left a wide slot in the middle.
func (l *rankSlots) desertion(x *rankSlot) string {
	var who []string
	for rank := range l.ranks {
		if l.deserted(x, rank) {
			who = append(who, strconv.Itoa(rank))
		}
	}
	return fmt.Sprintf("allreduce %s: rank %s of this host ended amid it, and the tensor holds no result", x.call.Name, strings.Join(who, ", "))
}
