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
