package rank

import (
	"sync/atomic"
	"testing"

	"gorun/worker/session/codec"
)

// Who has left a wide slot in the middle is named, once no one else writes to the tensors any more.
func TestWhoLeftWideSlotEarly(t *testing.T) {
	l := &slotTable{memory: make([]byte, 8192), ranks: 4}
	x := &slot{state: slotTaken, wide: true, use: 3, at: 4 * codec.SlotLine}
	x.call.Name = "grad"
	for _, rank := range []int{1, 3} {
		atomic.StoreUint32(l.flag(rank, codec.SlotLeft), codec.RankLeft)
	}
	*field[uint64](l, x, 0, codec.SlotDone) = 3
	if how := l.slicesDone(x); how != awaited {
		t.Fatalf("%v while rank 2 works", how)
	}
	*field[uint64](l, x, 2, codec.SlotDone) = 3
	if how := l.slicesDone(x); how != broken {
		t.Fatalf("%v, and two have left", how)
	}
	const want = "allreduce grad: rank 1, 3 of this host ended in the middle of it, and the tensor holds no result"
	if got := l.deserted(x).Error(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
