package member

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestCadence: what has no answer is sent again ever more rarely, and soon once someone is back.
func TestCadence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCadence()
		defer c.stop()
		last := time.Now()
		expect := func(want time.Duration, when string) {
			t.Helper()
			now := <-c.C
			if took := now.Sub(last); took != want {
				t.Errorf("%s: after %v, want %v", when, took, want)
			}
			last = now
		}
		c.set(tickPeriod)
		for _, want := range []time.Duration{200, 400, 800, 1000, 1000} {
			expect(want*time.Millisecond, "nobody answers")
			c.later()
		}
		time.Sleep(300 * time.Millisecond)
		c.set(tickPeriod)
		expect(500*time.Millisecond, "somebody is back 0.3 s after the last time")
		expect(200*time.Millisecond, "and has not answered yet")
	})
}
