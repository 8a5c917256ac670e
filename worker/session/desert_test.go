package session

import (
	"sync/atomic"
	"testing"
)

// Who has left a wide lane in the middle is named, once nobody else writes to the tensors any more.
func TestDesertedWideLane(t *testing.T) {
	l := &rankLanes{memory: make([]byte, 8192), ranks: 4, busy: map[uint32]*rankLane{}}
	x := &rankLane{state: laneTaken, wide: true, reduced: true, use: 3, handle: 9, at: 4 * laneLine}
	x.call.Name = "grad"
	l.busy[9] = x
	r := &Rank{lanes: l, done: map[uint32]completion{}}
	for _, rank := range []int{1, 3} {
		atomic.StoreUint32(l.flag(rank, laneLeft), rankLeft)
	}
	*field[uint64](l, x, 0, laneDone) = 3
	if ended, err := r.look(x); ended || err != nil {
		t.Fatalf("ended while rank 2 works: %v", err)
	}
	*field[uint64](l, x, 2, laneDone) = 3
	if ended, err := r.look(x); !ended || err != nil {
		t.Fatalf("goes on: %v", err)
	}
	if got, want := r.done[9].text, "allreduce grad: rank 1, 3 of this host ended amid it, and the tensor holds no result"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
