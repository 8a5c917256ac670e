package talk

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// onlyStarts is a Dialer that can take nothing over.
type onlyStarts struct{}

func (onlyStarts) Dial(context.Context, string) (*Daemon, error) { return nil, nil }

// TestOnlyStarts: a daemon whose launcher is gone is not started once more where it cannot be taken over.
func TestOnlyStarts(t *testing.T) {
	h := New(Config{Dial: onlyStarts{}}, wire.Job{Name: "a"})
	h.Adopt("session", 0)
	if d, err := h.dial(t.Context()); err == nil || err.Error() != "take over daemon: it can only be started" {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestLauncherShowsItIsThere: a daemon hears every few seconds that its launcher is there, also if that has nothing
// else to send.
func TestLauncherShowsItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		h := New(Config{Interval: liveness.Default().LauncherInterval}, wire.Job{Name: "h0"})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.write(&Daemon{In: w, Close: w.Close})
		}()
		in, began := wire.NewReader(r), time.Now()
		h.Queue.Put(&wire.Form{})
		for _, want := range []struct {
			m  wire.Message
			at time.Duration
		}{{&wire.Form{}, 0}, {&wire.Alive{}, liveness.Default().LauncherInterval}, {&wire.Alive{}, 2 * liveness.Default().LauncherInterval}} {
			m, err := in.Read()
			if at := time.Since(began); err != nil || fmt.Sprintf("%T", m) != fmt.Sprintf("%T", want.m) || at != want.at {
				t.Errorf("%T (%v) after %v, want %T after %v", m, err, at, want.m, want.at)
			}
		}
		h.Queue.Close()
		<-ended
	})
}

// TestPause: a pause is by the calendar if the other clock stopped too, as it does in a machine that is
// suspended.
func TestPause(t *testing.T) {
	began := time.Now()
	s := spokenEvery(liveness.Default().LauncherInterval)
	s.Note(began)
	s.Note(began.Add(liveness.Default().LauncherInterval))
	if p := s.Silent(began.Add(2 * liveness.Default().LauncherInterval)); p.Lasted() != 0 {
		t.Errorf("a launcher that speaks as often as it should was silent for %v", p.Lasted())
	}
	s.Note(began.Add(time.Hour).Round(0))
	if p := s.Silent(began.Add(time.Hour).Round(0)); p.Lasted().Round(time.Second) != time.Hour-liveness.Default().LauncherInterval {
		t.Errorf("it was silent for %v", p.Lasted())
	}
}

func TestHeard(t *testing.T) {
	var h Heard
	start := time.Unix(1000, 0)
	if !h.Last(start).IsZero() {
		t.Error("heard before it spoke")
	}
	h.Reading(start)
	if got := h.Last(start.Add(time.Minute)); got != start {
		t.Errorf("last heard at %v", got)
	}
	h.Has(start) // and then the terminal takes nothing
	if now := start.Add(time.Minute); h.Last(now) != now {
		t.Error("a host is silent because the launcher does not read")
	}
}
