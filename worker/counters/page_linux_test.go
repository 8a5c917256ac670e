package counters

import (
	"encoding/binary"
	"testing"
	"time"

	"gorun/contrib/must"
)

func TestOffset(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"monotonic           0         0\nboottime            0         0\n": 0,
		"monotonic       36000         5\nboottime       72000         0\n":  10*time.Hour + 5,
		"monotonic         -10 500000000\nboottime            1         0\n": -9500 * time.Millisecond,
		"boottime        72000         0\n":                                  0, "monotonic x y\n": 0, "": 0,
	} {
		if got := offsetIn(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := offset("no such process"); got != 0 {
		t.Errorf("of no process: %v", got)
	}
}

// TestOtherClock: a rank whose clock is ten hours ahead has not computed for ten hours.
func TestOtherClock(t *testing.T) {
	p, err := NewPage()
	must.Do(t, err)
	defer p.Close()
	w, err := Open(p.Path())
	must.Do(t, err)
	for _, ahead := range []time.Duration{0, 10 * time.Hour, -monotonic() / 2} {
		p.ahead = ahead
		binary.LittleEndian.PutUint64(w.page[AtBegan:], uint64(monotonic()+ahead-time.Minute))
		if c := p.Read(); c.Elapsed < time.Minute || c.Elapsed > 2*time.Minute {
			t.Errorf("%v ahead: it counts for %v", ahead, c.Elapsed)
		}
	}
}
