package rank

import (
	"sync/atomic"
	"unsafe"

	"gorun/worker/session/codec"
)

// The rank's end of the belt, over which tensors in ordinary memory go part by part. "The belt" in
// worker/session/codec/PROTOCOL.md describes it.

// Ordinary returns a tensor in memory that the rank does not share with the daemon, for Do alone.
func Ordinary(b []byte) Piece {
	return Piece{Memory: &Memory{Bytes: b, region: codec.NoRegion}, Bytes: len(b)}
}

// shared reports whether the daemon can see a piece.
func (p Piece) shared() bool { return p.number() != codec.NoRegion }

// belt is the belt as this rank sees it. The zero belt stands for none.
type belt struct {
	there bool
	parts uint64 // how many have gone over it
}

// part is a part of a tensor. Each rank reduces a share of it.
type part struct {
	number    uint64 // counted from the first one that went over the belt
	at        int    // its place in the tensor
	bytes     int
	shareSize int
}

// share returns the bounds of a rank's share of a part, from its beginning.
func (p part) share(rank int) (lo, hi int) {
	return min(rank*p.shareSize, p.bytes), min((rank+1)*p.shareSize, p.bytes)
}

// area returns the area of a rank.
func (l *slotTable) area(rank int) []byte {
	return l.memory[codec.SlotsBytes+rank*codec.BeltArea:][:codec.BeltArea]
}

// count returns where a rank counts its filled, or reduced, parts.
func (l *slotTable) count(rank, which int) *uint64 {
	return (*uint64)(unsafe.Pointer(&l.area(rank)[which]))
}

// place returns the place of a part in the area of a rank.
func (l *slotTable) place(rank int, p part) []byte {
	return l.area(rank)[codec.BeltBuffers+int(p.number%codec.BeltDepth)*codec.BeltPart:][:p.bytes]
}

// result returns the place of the share of a part that a rank has reduced.
func (l *slotTable) result(rank int, p part) []byte {
	lo, hi := p.share(rank)
	return l.area(rank)[codec.BeltResults+int(p.number%codec.BeltDepth)*codec.BeltShare:][:hi-lo]
}

func (l *slotTable) broken(rank int) *uint32 {
	return (*uint32)(unsafe.Pointer(&l.area(rank)[codec.BeltBroken]))
}

// parted reports whether a rank will never reach so many parts.
func (l *slotTable) parted(rank int, goal uint64) bool {
	gone := atomic.LoadUint32(l.broken(rank)) != 0 || atomic.LoadUint32(l.flag(rank, codec.SlotLeft)) == codec.RankLeft
	return gone && atomic.LoadUint64(l.count(rank, codec.BeltReduced)) < goal
}

// come reports whether all ranks have filled, or reduced, so many parts.
func (l *slotTable) come(which int, goal uint64) meeting {
	how := complete
	for rank := range l.ranks {
		switch {
		case atomic.LoadUint64(l.count(rank, which)) >= goal:
		case l.parted(rank, goal):
			return broken
		default:
			how = awaited
		}
	}
	return how
}

// publish notifies the others that this rank has filled, or reduced, a part.
func (l *slotTable) publish(which int, p part) {
	atomic.StoreUint64(l.count(l.self, which), p.number+1)
	l.rouse()
}

// fillPart copies a part of this rank's tensor to the belt, for the others to reduce.
func (l *slotTable) fillPart(p part, o *Operation) {
	from, to := o.In.bytes()[p.at:], l.place(l.self, p)
	for rank := range l.ranks {
		if lo, hi := p.share(rank); rank != l.self {
			copy(to[lo:hi], from[lo:hi])
		}
	}
	l.publish(codec.BeltFilled, p)
}

// reducePart reduces this rank's share, for itself and for the others.
func (l *slotTable) reducePart(x *slot, p part, o *Operation) {
	lo, hi := p.share(l.self)
	l.buffers = l.buffers[:0]
	for rank := range l.ranks {
		if rank == l.self {
			l.buffers = append(l.buffers, o.In.bytes()[p.at+lo:p.at+hi])
		} else {
			l.buffers = append(l.buffers, l.place(rank, p)[lo:hi])
		}
	}
	l.results = append(l.results[:0], o.Out.bytes()[p.at+lo:p.at+hi], l.result(l.self, p))
	x.plan(l.ranks).Reduce(l.results, nil, l.buffers)
	l.publish(codec.BeltReduced, p)
}

// takePart takes what the others have reduced.
func (l *slotTable) takePart(p part, o *Operation) {
	to := o.Out.bytes()[p.at:]
	for rank := range l.ranks {
		if lo, hi := p.share(rank); rank != l.self {
			copy(to[lo:hi], l.result(rank, p))
		}
	}
}

// part returns the i-th part of a tensor of n bytes.
func (l *slotTable) part(i, n int) part {
	p := part{number: l.belt.parts + uint64(i), at: i * codec.BeltPart, bytes: min(codec.BeltPart, n-i*codec.BeltPart)}
	p.shareSize = ((p.bytes+l.ranks-1)/l.ranks + codec.SlotLine - 1) &^ (codec.SlotLine - 1)
	return p
}

// passBelt reduces a tensor part by part. Three parts are under way, so that ranks of equal speed never wait: while this
// rank fills one, the others have filled the part before it and reduced the one before that.
func (s *Session) passBelt(x *slot, o *Operation) (err error) {
	l, n := s.slots, o.In.Bytes
	count := (n + codec.BeltPart - 1) / codec.BeltPart
	defer func() {
		l.belt.parts += uint64(count)
		if err != nil { // the belt is closed for good: the ranks are at different parts
			l.belt.there = false
			atomic.StoreUint32(l.broken(l.self), codec.BeltFailed)
			l.rouse()
		}
	}()
	for i := range count + 2 {
		if i < count {
			l.fillPart(l.part(i, n), o)
		}
		if i >= 1 && i <= count {
			p := l.part(i-1, n)
			if err := s.awaitPart(x, codec.BeltFilled, p); err != nil {
				return err
			}
			l.reducePart(x, p, o)
		}
		if i >= 2 {
			p := l.part(i-2, n)
			if err := s.awaitPart(x, codec.BeltReduced, p); err != nil {
				return err
			}
			l.takePart(p, o)
		}
	}
	return nil
}

// awaitPart waits until all ranks have filled, or reduced, a part.
func (s *Session) awaitPart(x *slot, which int, p part) error {
	how, err := s.await(func() meeting { return s.slots.come(which, p.number+1) })
	if err == nil && how == broken {
		err = s.slots.deserted(x, func(rank int) bool {
			return s.slots.parted(rank, p.number+1) && atomic.LoadUint32(s.slots.broken(rank)) != codec.BeltFailed
		})
	}
	return err
}
