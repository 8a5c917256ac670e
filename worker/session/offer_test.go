package session

import (
	"testing"

	"gorun/worker/shm"
)

// A rank that has been told how a use ended may offer its part of the next one before the others are told: that part is
// shown to them when the next use ends.
func TestOfferBeforeOthersAreTold(t *testing.T) {
	w := World{Size: 2, Hosts: 1, Places: []Place{{Rank: 0, LocalRank: 0}, {Rank: 1, LocalRank: 1}}}
	l, err := newSlots(w)
	if err != nil {
		t.Fatal(err)
	}
	defer l.region.Release()
	const n = 1 << 20
	var regions [2]*shm.Region
	budget := shm.NewBudget(1 << 30)
	for i := range regions {
		if regions[i], err = shm.Create(budget, "test", n); err != nil {
			t.Fatal(err)
		}
	}
	wide := func(rank int) offer {
		at := tenancy{uint32(7 + rank), regions[rank]}
		return offer{slot: true, wide: true, part: part{at, at}}
	}
	l.offer(0, "x", n, wide(0))
	l.offer(1, "x", n, offer{})
	if at, shows := l.assign(0, "x", false); at != 0 || len(shows) != 0 {
		t.Fatalf("a slot at %d that one rank offered", at)
	}
	l.offer(0, "x", n, wide(0))
	if at, _ := l.assign(1, "x", false); at != 0 {
		t.Fatalf("a slot at %d that one rank offered", at)
	}
	l.offer(1, "x", n, wide(1))
	for rank := range 2 {
		at, shows := l.assign(rank, "x", false)
		if at%slotLine != wideSlot || len(shows) != 1 || shows[0].place != 1-rank || shows[0].number != uint32(8-rank) {
			t.Errorf("rank %d: slot at %d, shown %+v", rank, at, shows)
		}
		for _, s := range shows {
			s.region.Release()
		}
	}
	for _, r := range regions {
		r.Release()
	}
	if budget.Used() != 0 {
		t.Errorf("%d bytes are still held", budget.Used())
	}
}
