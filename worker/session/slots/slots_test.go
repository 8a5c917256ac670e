package slots

import (
	"testing"

	"gorun/contrib/must"
	"gorun/worker/session/codec"
	"gorun/worker/shm"
)

// A rank that knows how a use ended may offer its tensors for the next one before the others know: those tensors are shown
// to them when the next use ends.
func TestOfferBeforeOthersAreNotified(t *testing.T) {
	l, err := New("host1", []int{0, 1})
	must.Do(t, err)
	defer l.Region().Release()
	const n = 1 << 20
	var regions [2]*shm.Region
	budget := shm.NewBudget(1 << 30)
	for i := range regions {
		if regions[i], err = shm.Create(budget, "test", n); err != nil {
			t.Fatal(err)
		}
	}
	wide := func(rank int) Offer {
		at := Region{uint32(7 + rank), regions[rank]}
		return Offer{Slot: true, Wide: true, Tensors: Tensors{at, at}}
	}
	l.Offer(0, "x", n, wide(0))
	l.Offer(1, "x", n, Offer{})
	if at, shows := l.Assign(0, "x", false); at != 0 || len(shows) != 0 {
		t.Fatalf("a slot at %d that one rank offered", at)
	}
	l.Offer(0, "x", n, wide(0))
	if at, _ := l.Assign(1, "x", false); at != 0 {
		t.Fatalf("a slot at %d that one rank offered", at)
	}
	l.Offer(1, "x", n, wide(1))
	for rank := range 2 {
		at, shows := l.Assign(rank, "x", false)
		if at%codec.SlotLine != codec.WideSlot || len(shows) != 1 || shows[0].Place != 1-rank || shows[0].Number != uint32(8-rank) {
			t.Errorf("rank %d: slot at %d, shown %+v", rank, at, shows)
		}
		for _, s := range shows {
			s.Memory.Release()
		}
	}
	for _, r := range regions {
		r.Release()
	}
	if budget.Used() != 0 {
		t.Errorf("%d bytes are still held", budget.Used())
	}
}
