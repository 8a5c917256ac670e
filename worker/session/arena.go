package session

import (
	"fmt"

	"gorun/collective/kernel"
	"gorun/worker/session/codec"
	"gorun/worker/shm"
)

// maxRegions bounds the regions of a rank: each costs a descriptor and a mapping.
const maxRegions = 256

// arena is the memory that a rank has asked for, by number. It belongs to the session's reader.
type arena struct {
	regions map[uint32]*shm.Region
	last    uint32 // number
}

// add takes a region and returns its number.
func (a *arena) add(r *shm.Region) uint32 {
	for a.last++; a.regions[a.last] != nil || a.last == codec.NoRegion; a.last++ {
	}
	a.regions[a.last] = r
	return a.last
}

// memory pins a piece of a region of this rank that must be size bytes long.
func (a *arena) memory(p codec.Piece, size uint64, t kernel.Type) ([]byte, *shm.Region, error) {
	if p.Bytes != size {
		return nil, nil, fmt.Errorf("%d bytes, but the shape needs %d", p.Bytes, size)
	}
	if p.Region == codec.NoRegion {
		if size == 0 {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("no memory given for %d bytes", size)
	}
	r := a.regions[p.Region]
	if r == nil {
		return nil, nil, fmt.Errorf("region %d is not this rank's", p.Region)
	}
	if p.Offset > uint64(r.Size()) || p.Bytes > uint64(r.Size())-p.Offset {
		return nil, nil, fmt.Errorf("%d bytes at %d are outside of region %d (%d bytes)", p.Bytes, p.Offset, p.Region, r.Size())
	}
	if p.Offset%uint64(t.Size()) != 0 {
		return nil, nil, fmt.Errorf("offset %d is not aligned to %s", p.Offset, t)
	}
	r.Retain()
	end := p.Offset + p.Bytes
	return r.Bytes()[p.Offset:end:end], r, nil
}
