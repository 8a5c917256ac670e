package liveness_test

import (
	"testing"
)

// TestWaits: how long a start, and an end, waits for a host that is silent since 100 s.
func TestWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		now, late           float64 // the start is late since then
		change              func(s *scene)
		failing, returning  bool
		mayReturn, straggle bool
	}{
		"it is heard":                    {now: 101, late: 90},
		"it is silent for a moment":      {now: 102, late: 90, returning: true, mayReturn: true, straggle: true},
		"it is silent for longer":        {now: 105, late: 90, failing: true, returning: true, mayReturn: true, straggle: true},
		"its lease ends":                 {now: 130, late: 110, failing: true, returning: true, straggle: true},
		"it moves":                       {now: 130, late: 110, change: func(s *scene) { s.hosts.Moves(0, sec(1000)) }, failing: true, returning: true, mayReturn: true, straggle: true},
		"the start is late for too long": {now: 105, late: 55, failing: true, returning: true, straggle: true},
		"it is not ready":                {now: 105, late: 90, change: func(s *scene) { s.of(0).Ready = false }, straggle: true},
		"it is back":                     {now: 115, late: 90, change: func(s *scene) { s.hosts.Look(sec(105), s.view); s.hear(115, 0) }, returning: true, mayReturn: true},
		"it is back for a while":         {now: 126, late: 90, change: func(s *scene) { s.hosts.Look(sec(105), s.view); s.hear(126, 0) }},
		"this machine was paused":        {now: 105, late: 90, change: func(s *scene) { s.hosts.Begin(sec(104)) }},
	} {
		s := newScene(1)
		s.hear(100, 0)
		if tc.change != nil {
			tc.change(s)
		}
		now, c := sec(tc.now), *s.of(0)
		_, failing := s.hosts.Failing(now, c)
		_, straggles := s.hosts.Straggles(now, c)
		if failing != tc.failing || straggles != tc.straggle {
			t.Errorf("%s: failing %v, straggles %v, want %v and %v", name, failing, straggles, tc.failing, tc.straggle)
		}
		mayReturn, returning := s.hosts.MayReturn(now, c, sec(tc.late), s.view), s.hosts.Returning(now, c)
		if mayReturn != tc.mayReturn || returning != tc.returning {
			t.Errorf("%s: may return %v, returning %v, want %v and %v", name, mayReturn, returning, tc.mayReturn, tc.returning)
		}
	}
}
