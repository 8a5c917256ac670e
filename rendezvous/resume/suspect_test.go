package resume

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestFollow: while a connection is silent another one is looked for, and takes its place unless the present one has
// spoken meanwhile; and even then if the other side has not got what was sent to it: that may take TCP as long as the
// silence was.
func TestFollow(t *testing.T) {
	for name, tc := range map[string]struct {
		lacks   bool // the other side, of what was written
		found   bool // another connection
		then    func(s *ResumableStream, spoke *Moment, end func())
		taken   bool
		dropped bool
	}{
		"it stays silent":                    {found: true, taken: true},
		"there is no other one":              {then: func(_ *ResumableStream, _ *Moment, end func()) { end() }},
		"it ends meanwhile":                  {found: true, then: func(_ *ResumableStream, _ *Moment, end func()) { end() }, dropped: true},
		"it speaks again":                    {found: true, then: func(_ *ResumableStream, spoke *Moment, _ func()) { spoke.Set(time.Time{}) }, dropped: true},
		"it speaks again, and hears nothing": {lacks: true, found: true, then: func(_ *ResumableStream, spoke *Moment, _ func()) { spoke.Set(time.Time{}) }, taken: true},
		"it speaks again, and hears again": {lacks: true, found: true, then: func(s *ResumableStream, spoke *Moment, _ func()) {
			s.mu.Lock()
			s.acknowledged(2, 2)
			s.mu.Unlock()
			spoke.Set(time.Time{})
		}, dropped: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New()
			if tc.lacks {
				s.Write([]byte("hi"))
			}
			var since Moment
			since.Set(time.Now().Add(-time.Hour))
			over, dropped := make(chan struct{}), make(chan struct{}, 1)
			end := func() { close(over) }
			c := Carrier[string]{Over: over, Waits: since.Get, SuspectAfter: 200 * time.Millisecond,
				Find: func(ctx context.Context, silent func() bool) (string, bool) {
					if !silent() {
						t.Error("another one is looked for although it is not silent")
					}
					if tc.then != nil {
						tc.then(s, &since, end)
					}
					if tc.dropped && !since.Get().IsZero() {
						<-ctx.Done() // it has ended
					}
					return "other", tc.found
				},
				Drop: func(conn string) {
					if conn != "other" {
						t.Errorf("%q is dropped", conn)
					}
					dropped <- struct{}{}
					if since.Get().IsZero() {
						end() // there is nothing more to see
					}
				}}
			next, taken := c.Follow(t.Context(), s)
			if taken != tc.taken || taken != (next == "other") {
				t.Errorf("taken %v (%q), want %v", taken, next, tc.taken)
			}
			if got := len(dropped) == 1; got != tc.dropped {
				t.Errorf("dropped %v, want %v", got, tc.dropped)
			}
		})
	}
}

// TestSilence: a launcher is silent since its last message was due, if this host could hear it all the time.
func TestSilence(t *testing.T) {
	at := func(sec float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(sec * float64(time.Second))) }
	for name, tc := range map[string]struct {
		waits func(sec float64) float64 // since when, 0 for not
		stood float64                   // this host, from the 10th second on
		want  float64                   // the silence in the 20th
	}{
		"nothing comes":            {func(float64) float64 { return 4 }, 0, 16},
		"nothing ever came":        {func(float64) float64 { return 0.5 }, 0, 19},
		"something came":           {func(s float64) float64 { return s - 0.25 }, 0, 0.25},
		"it is not read":           {func(float64) float64 { return 0 }, 0, 0},
		"it was not read a while":  {func(s float64) float64 { return map[bool]float64{true: 4, false: 0}[s < 8 || s > 12] }, 0, 8},
		"this host stood still":    {func(float64) float64 { return 4 }, 3, 7},
		"this host was a bit busy": {func(float64) float64 { return 4 }, 1, 16},
	} {
		var s silence
		var got time.Duration
		for sec := 1.0; sec <= 20; sec += timing.LookInterval.Seconds() {
			if tc.stood > 0 && sec > 10 && sec < 10+tc.stood {
				continue
			}
			var waits time.Time
			if w := tc.waits(sec); w > 0 {
				waits = at(w)
			}
			got = s.look(at(sec), waits)
		}
		if got.Seconds() != tc.want {
			t.Errorf("%s: silent for %v, want %v s", name, got, tc.want)
		}
	}
}

// TestWaitsByMonotonicClock: since when a Read waits is known by the monotonic clock, too. By the wall clock alone, one that is
// set back by an hour would hide a launcher's silence for an hour.
func TestWaitsByMonotonicClock(t *testing.T) {
	from, to := io.Pipe()
	l := &Listener{Reader: from}
	var reading sync.WaitGroup
	reading.Go(func() { l.Read(make([]byte, 1)) })
	for l.Waits().IsZero() {
		time.Sleep(time.Millisecond)
	}
	if since := l.Waits(); !strings.Contains(since.String(), " m=") {
		t.Errorf("it waits since %v, by the wall clock alone", since)
	}
	to.Close()
	reading.Wait()
	if since := l.Waits(); !since.IsZero() {
		t.Errorf("it waits since %v after the end", since)
	}
}
