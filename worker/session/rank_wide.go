package session

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The rank's end of wide lanes.

// see maps memory of another rank.
func (l *rankLanes) see(b []byte, fd int) error {
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
func (l *rankLanes) unsee(b []byte) error {
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

func field[T any](l *rankLanes, x *rankLane, rank, at int) *T {
	return (*T)(unsafe.Pointer(&l.memory[x.at+rank*laneLine+at]))
}

// show lets the others know where this rank's tensors are. They read it once they have seen its word, and this rank does
// not come again before all are done.
func (l *rankLanes) show(x *rankLane) {
	*field[uint32](l, x, l.self, wideIn) = x.call.In.number()
	*field[uint32](l, x, l.self, wideOut) = x.call.Out.number()
	*field[uint64](l, x, l.self, wideInOffset) = uint64(x.call.In.Offset)
	*field[uint64](l, x, l.self, wideOutOffset) = uint64(x.call.Out.Offset)
}

// tensor is a rank's tensor in this rank's eyes.
func (l *rankLanes) tensor(x *rankLane, rank, region, offset int) ([]byte, error) {
	number, at := *field[uint32](l, x, rank, region), *field[uint64](l, x, rank, offset)
	b, n := l.seen[shownRegion{rank, number}], uint64(x.call.In.Bytes)
	if uint64(len(b)) < n || at > uint64(len(b))-n || at%uint64(x.call.Type.Size()) != 0 {
		return nil, malformed("tensor of rank %d of this host at %d of %d bytes of region %d", rank, at, len(b), number)
	}
	return b[at : at+n], nil
}

// reduceSlice makes this rank's slice of the result, for all ranks, and says that it did.
func (l *rankLanes) reduceSlice(x *rankLane) (err error) {
	n := x.call.In.Bytes
	share := ((n+l.ranks-1)/l.ranks + laneLine - 1) &^ (laneLine - 1)
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
	atomic.StoreUint64(field[uint64](l, x, l.self, laneDone), x.use)
	if l.parting(x) != awaited {
		l.rouse()
	}
	return nil
}

// parting is how far the others are with their slices: a rank that ended without its own leaves a result that is none. Those
// that are alive write to this rank's tensor until they are done all the same.
func (l *rankLanes) parting(x *rankLane) meeting {
	how := complete
	for rank := range l.ranks {
		switch {
		case atomic.LoadUint64(field[uint64](l, x, rank, laneDone)) >= x.use:
		case l.deserted(x, rank):
			how = broken
		default: // it works, or GONE is on its way
			return awaited
		}
	}
	return how
}

// deserted reports whether a rank has left a wide lane without its slice.
func (l *rankLanes) deserted(x *rankLane, rank int) bool {
	return atomic.LoadUint32(l.flag(rank, laneLeft)) == rankLeft && atomic.LoadUint64(field[uint64](l, x, rank, laneDone)) < x.use
}

// desertion says who left a wide lane in the middle.
func (l *rankLanes) desertion(x *rankLane) string {
	var who []string
	for rank := range l.ranks {
		if l.deserted(x, rank) {
			who = append(who, strconv.Itoa(rank))
		}
	}
	return fmt.Sprintf("allreduce %s: rank %s of this host ended amid it, and the tensor holds no result", x.call.Name, strings.Join(who, ", "))
}
