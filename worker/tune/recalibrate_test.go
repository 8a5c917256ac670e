package tune

import (
	"math"
	"testing"

	"gorun/collective/schedule"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// TestRecalibration: a cost changes as much as the edges did since the first seconds, but not by what they report once,
// nor too often.
func TestRecalibration(t *testing.T) {
	fitted := schedule.Cost{Alpha: 100e-6, Beta: 1e-9, Gap: 5e-6}
	usual, slow, far := quality{500e6, 300e-6}, quality{100e6, 320e-6}, quality{450e6, 20e-3}
	// looks feeds the same for some seconds, and returns the second of the first change and the cost.
	looks := func(f *recalibration, w quality, seconds int) (int, schedule.Cost) {
		for s := 1; s <= seconds; s++ {
			if c, off := f.look(w); off {
				return s, c
			}
		}
		return 0, schedule.Cost{}
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 0.01*b }
	for _, test := range []struct {
		name  string
		begin schedule.Cost
		say   []quality // for ten seconds each
		then  quality
		after int
		want  schedule.Cost
	}{
		{"the same", fitted, []quality{usual}, quality{400e6, 250e-6}, 0, schedule.Cost{}},
		{"slower", fitted, []quality{usual}, slow, 3, schedule.Cost{Alpha: 110e-6, Beta: 5e-9, Gap: 5e-6}},
		{"farther", fitted, []quality{usual}, far, 3, schedule.Cost{Alpha: 9.95e-3, Beta: 1.111e-9, Gap: 5e-6}},
		{"a little farther", fitted, []quality{usual}, quality{500e6, 600e-6}, 0, schedule.Cost{}},
		{"nearer", fitted, []quality{far}, quality{450e6, 100e-6}, 0, schedule.Cost{}}, // it was fitted to what it was
		{"faster", fitted, []quality{slow}, usual, 3, schedule.Cost{Alpha: 90e-6, Beta: 0.2e-9, Gap: 5e-6}},
		{"nothing was known", fitted, []quality{{}}, slow, 0, schedule.Cost{}},
		{"nothing is known any more", fitted, []quality{usual}, quality{}, 0, schedule.Cost{}},
		{"nothing was measured before", schedule.Cost{}, []quality{usual}, slow, 0, schedule.Cost{}},
	} {
		var f recalibration
		f.begin(test.begin)
		for _, w := range test.say {
			if s, c := looks(&f, w, 10); s > 0 {
				t.Errorf("%s: %+v after %d s of what it was fitted to", test.name, c, s)
			}
		}
		s, c := looks(&f, test.then, 30)
		if s != test.after || s > 0 && !(near(c.Alpha, test.want.Alpha) && near(c.Beta, test.want.Beta) && c.Gap == test.want.Gap) {
			t.Errorf("%s: %+v after %d s, want %+v after %d", test.name, c, s, test.want, test.after)
		}
	}

	var f recalibration
	f.begin(fitted)
	looks(&f, usual, 10)
	for range 20 { // a ditch now and then
		for _, w := range []quality{slow, slow, usual} {
			if c, off := f.look(w); off {
				t.Fatalf("two slow seconds changed the cost to %+v", c)
			}
		}
	}
	s, c := looks(&f, slow, 30)
	f.cost, f.age, f.off = c, 0, 0
	if s != 3 {
		t.Fatalf("slow quality were seen after %d s", s)
	}
	if s, c := looks(&f, slow, 30); s > 0 {
		t.Errorf("the same quality changed the cost again, to %+v", c)
	}
	f.age = 0
	if s, c := looks(&f, usual, 30); s != stableTicks || !near(c.Beta, fitted.Beta) {
		t.Errorf("back to what it was: %+v after %d s, want it after %d", c, s, stableTicks)
	}
}

// TestWorstWay: the slowest and the farthest edge of the ring count, in its direction, and others do not.
func TestWorstWay(t *testing.T) {
	w := newEdgeWatch()
	for pair, e := range map[topology.Pair]wire.Edge{
		{From: 4, To: 7}: {Bandwidth: 300e6, RTT: 1e-3},
		{From: 7, To: 9}: {RTT: 3e-3},
		{From: 9, To: 4}: {Bandwidth: 200e6, RTT: 2e-3},
		{From: 7, To: 4}: {Bandwidth: 1e6, RTT: 1},
	} {
		w.all[pair] = e
	}
	if got, want := w.worst([]int{4, 7, 9}), (quality{200e6, 3e-3}); got != want {
		t.Errorf("the worst of the ring is %+v, want %+v", got, want)
	}
	if got := w.worst([]int{1, 2}); got != (quality{}) {
		t.Errorf("%+v of quality that nobody knows", got)
	}
}
