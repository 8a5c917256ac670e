package member

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"gorun/rendezvous/wire"
	"gorun/worker/loop"
)

// TestCadence: what has no answer is sent again ever more rarely, and soon once someone is back.
func TestCadence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{Component: loop.Component{Job: &wire.Job{}, Log: slog.New(slog.DiscardHandler)}})
		defer m.Close()
		last := time.Now()
		expect := func(want time.Duration, when string) {
			t.Helper()
			now := <-m.Ticks()
			if took := now.Sub(last); took != want {
				t.Errorf("%s: after %v, want %v", when, took, want)
			}
			last = now
		}
		m.tickEvery(tickPeriod)
		for _, want := range []time.Duration{200, 400, 800, 1000, 1000} {
			expect(want*time.Millisecond, "nobody answers")
			m.Tick(t.Context())
		}
		time.Sleep(300 * time.Millisecond)
		m.tickEvery(tickPeriod)
		expect(500*time.Millisecond, "somebody is back 0.3 s after the last time")
		expect(200*time.Millisecond, "and has not answered yet")
	})
}
