package launcher

import (
	"testing"
	"time"

	"gorun/launcher/stall"
	"gorun/rendezvous/wire"
)

// TestToRecord: each stall is recorded once, but not soon after another one was.
func TestToRecord(t *testing.T) {
	var s stalls
	now := time.Unix(1000, 0)
	waits := func(names ...string) stall.Answers {
		var ops []wire.Waiting
		for _, name := range names {
			ops = append(ops, wire.Waiting{Kind: "allreduce", Name: name, AgeMS: 61000, Late: true, Missing: []wire.Missing{{Host: "a", Ranks: []int{1}}}})
		}
		return stall.Answers{Hosts: []string{"a"}, By: map[int]*wire.Stalled{0: {Asked: true, Ops: ops}}}
	}
	for i, round := range []struct {
		after   time.Duration
		answers stall.Answers
		want    bool
	}{
		{0, waits(), false},
		{time.Second, waits("x"), true},
		{2 * recordPause, waits("x"), false},
		{time.Second, waits("x", "y"), false},
		{time.Second, waits(), false},
		{time.Second, waits("z"), true},
		{time.Second, waits(), false},
		{time.Second, waits("z"), false}, // soon after
		{recordPause, waits("z"), true},
		{recordPause, waits("z"), false},
	} {
		now = now.Add(round.after)
		s.reports.Judge(now, round.answers)
		if got := s.toRecord(now); got != round.want {
			t.Errorf("round %d: recorded %v, want %v", i, got, round.want)
		}
	}
}

// TestAheadBy: an answer that was long under way does not show that a clock is late, but one that cannot be right does.
func TestAheadBy(t *testing.T) {
	for _, tt := range []struct{ shown, from, to, want int64 }{
		{50, 40, 90, 0}, {40, 40, 90, 0}, {95, 40, 90, 5}, {10, 40, 90, -30}, {80, 90, 90, -10},
	} {
		if got := aheadBy(tt.shown, tt.from, tt.to); got != tt.want {
			t.Errorf("%+v: got %d", tt, got)
		}
	}
}
