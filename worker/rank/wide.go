package rank

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"gorun/collective"
	"gorun/worker/session/codec"
)

// The rank's end of wide slots.

// regionOf is a region of another rank of this host.
type regionOf struct {
	place  int
	number uint32
}

// see maps memory of another rank.
func (l *slotTable) see(b []byte, fd int) error {
	place, number, size, err := codec.DecodeShow(b)
	if err != nil {
		return err
	}
	key := regionOf{place, number}
	if l == nil || place >= l.ranks || place == l.self || l.seen[key] != nil {
		return codec.Malformed("memory %d of rank %d of this host, which it cannot have", number, place)
	}
	l.seen[key], err = mmap(fd, size, unix.PROT_READ|unix.PROT_WRITE)
	return err
}

// unsee unmaps memory that its rank has freed.
func (l *slotTable) unsee(b []byte) error {
	place, number, err := codec.DecodeHide(b)
	if err != nil {
		return err
	}
	key := regionOf{place, number}
	if l == nil || l.seen[key] == nil {
		return codec.Malformed("end of memory %d of rank %d of this host, which was not shown", number, place)
	}
	unix.Munmap(l.seen[key])
	delete(l.seen, key)
	return nil
}

func field[T any](l *slotTable, x *slot, rank, at int) *T {
	return (*T)(unsafe.Pointer(&l.memory[x.at+rank*codec.SlotLine+at]))
}

// show publishes where this rank's tensors are. The others read that once they have seen its word, and this rank does
// not come again before all of them are done.
func (l *slotTable) show(x *slot) {
	*field[uint32](l, x, l.self, codec.WideIn) = x.call.In.number()
	*field[uint32](l, x, l.self, codec.WideOut) = x.call.Out.number()
	*field[uint64](l, x, l.self, codec.WideInOffset) = uint64(x.call.In.Offset)
	*field[uint64](l, x, l.self, codec.WideOutOffset) = uint64(x.call.Out.Offset)
}

// tensor returns a rank's tensor as it is mapped here.
func (l *slotTable) tensor(x *slot, rank, region, offset int) ([]byte, error) {
	number, at := *field[uint32](l, x, rank, region), *field[uint64](l, x, rank, offset)
	b, n := l.seen[regionOf{rank, number}], uint64(x.call.In.Bytes)
	if uint64(len(b)) < n || at > uint64(len(b))-n || at%uint64(x.call.Type.Size()) != 0 {
		return nil, codec.Malformed("tensor of rank %d of this host at %d of %d bytes of region %d", rank, at, len(b), number)
	}
	return b[at : at+n], nil
}

// reduceSlice makes this rank's slice of the result, for all ranks, and marks it as done.
func (l *slotTable) reduceSlice(x *slot) (err error) {
	n := x.call.In.Bytes
	share := ((n+l.ranks-1)/l.ranks + codec.SlotLine - 1) &^ (codec.SlotLine - 1)
	lo, hi := min(l.self*share, n), min((l.self+1)*share, n)
	l.buffers, l.results = l.buffers[:0], l.results[:0]
	for rank := range l.ranks {
		in, out := x.call.In.bytes(), x.call.Out.bytes()
		if rank != l.self {
			if in, err = l.tensor(x, rank, codec.WideIn, codec.WideInOffset); err != nil {
				return err
			}
			if out, err = l.tensor(x, rank, codec.WideOut, codec.WideOutOffset); err != nil {
				return err
			}
		}
		l.buffers, l.results = append(l.buffers, in[lo:hi]), append(l.results, out[lo:hi])
	}
	x.plan(l.ranks).Reduce(l.results, nil, l.buffers)
	atomic.StoreUint64(field[uint64](l, x, l.self, codec.SlotDone), x.use)
	if l.slicesDone(x) != awaited {
		l.rouse()
	}
	return nil
}

// slicesDone reports how far the others are with their slices. If a rank ended before its own was done, there is no
// result, but the other ranks still write to this rank's tensor until they are done.
func (l *slotTable) slicesDone(x *slot) meeting {
	how := complete
	for rank := range l.ranks {
		switch {
		case atomic.LoadUint64(field[uint64](l, x, rank, codec.SlotDone)) >= x.use:
		case l.leftEarly(x, rank):
			how = broken
		default: // it is at work, or GONE is on its way
			return awaited
		}
	}
	return how
}

// leftEarly reports whether a rank has left a wide slot before it reduced its slice.
func (l *slotTable) leftEarly(x *slot, rank int) bool {
	return atomic.LoadUint32(l.flag(rank, codec.SlotLeft)) == codec.RankLeft && atomic.LoadUint64(field[uint64](l, x, rank, codec.SlotDone)) < x.use
}

// deserted returns the error of an operation that ranks left in the middle, and names them.
func (l *slotTable) deserted(x *slot) error {
	var who []string
	for rank := range l.ranks {
		if l.leftEarly(x, rank) {
			who = append(who, strconv.Itoa(rank))
		}
	}
	return &collective.Error{Code: collective.CodeAborted, Text: fmt.Sprintf(
		"allreduce %s: rank %s of this host ended in the middle of it, and the tensor holds no result",
		x.call.Name, strings.Join(who, ", "))}
}
