package liveness_test

import (
	"testing"
	"time"

	"gorun/rendezvous/liveness"
)

// TestLateLooks: looks that come in time are no pause, a late one is, and the last one is remembered while looks go on.
func TestLateLooks(t *testing.T) {
	p := liveness.Gaps{Limit: time.Second}
	if gap, paused := p.Look(sec(0)); gap != 0 || paused || p.Latest(sec(0)).Lasted() != 0 {
		t.Errorf("it begins %v after a look, paused: %v", gap, paused)
	}
	if gap, paused := p.Look(sec(1)); gap != time.Second || paused {
		t.Errorf("a look in time comes after %v, paused: %v", gap, paused)
	}
	if got := p.Latest(sec(4)); got != (liveness.Gap{From: sec(1), To: sec(4)}) {
		t.Errorf("the pause that goes on is %v", got)
	}
	if gap, paused := p.Look(sec(5)); gap != 4*time.Second || !paused {
		t.Errorf("a late look comes after %v, paused: %v", gap, paused)
	}
	p.Look(sec(6))
	if got := p.Latest(sec(6.5)); got != (liveness.Gap{From: sec(1), To: sec(5)}) {
		t.Errorf("the last pause is %v", got)
	}
}

// TestOutlasted: hosts with a lease of 30 s end a job whose launcher was paused for 35 s, and for a while after that
// their reports count as consequences.
func TestOutlasted(t *testing.T) {
	for name, tc := range map[string]struct {
		now, from, to float64
		want          bool
	}{
		"shorter than the hosts wait": {35, 0, 34.9, false},
		"as long as they wait":        {36, 0, 35, true},
		"long over":                   {66, 0, 35, false},
		"no pause":                    {10, 0, 0, false},
	} {
		if got := liveness.Default().Outlasted(sec(tc.now), liveness.Gap{From: sec(tc.from), To: sec(tc.to)}, 30*time.Second); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
