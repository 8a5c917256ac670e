package metrics

import (
	"testing"

	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

// TestNoCounterGoesBack: a wait that counted as one for others turns out to have been for bytes. A process that replaces
// another one counts from zero.
func TestNoCounterGoesBack(t *testing.T) {
	c := &collector{}
	report := func(pid int, s wire.Split) counts {
		c.take(jobs.State{Ranks: []jobs.RankStatus{{Rank: 1, Host: "host1", PID: pid, Split: &s}, {Rank: 2, Host: "host1", PID: 99}}})
		if len(c.counted) != 1 {
			t.Errorf("%d processes are kept, want 1", len(c.counted))
		}
		return c.counted[process{"host1", 1, pid}]
	}
	for _, step := range []struct {
		pid  int
		said wire.Split
		want counts
	}{
		{10, wire.Split{Elapsed: 100, Steps: 2, Data: 10, Others: 50, Communication: 20, Hidden: 5, Operations: 7}, counts{2, 7, 20, 10, 20, 50, 5}},
		{10, wire.Split{Elapsed: 101, Steps: 2, Data: 10, Others: 20, Communication: 50, Hidden: 5, Operations: 8}, counts{2, 8, 21, 10, 50, 50, 5}},
		{10, wire.Split{Elapsed: 140, Steps: 3, Data: 10, Others: 55, Communication: 50, Hidden: 6, Operations: 9}, counts{3, 9, 25, 10, 50, 55, 6}},
		{11, wire.Split{Elapsed: 3, Others: 1}, counts{0, 0, 2, 0, 0, 1}},
	} {
		if got := report(step.pid, step.said); got != step.want {
			t.Errorf("after %+v: %+v, want %+v", step.said, got, step.want)
		}
	}
}
