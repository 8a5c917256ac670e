package pauses_test

import (
	"log/slog"
	"slices"
	"testing"

	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/worker/loop"
	"gorun/worker/pauses"
)

// ring is a ring of one host, which has nothing under way.
type ring struct {
	epoch uint32
	did   []string
}

func (r *ring) Epoch() uint32 { return r.epoch }
func (r *ring) Pause(_ uint32, quiet func()) {
	r.did = append(r.did, "pause")
	quiet()
}
func (r *ring) Resume(*pause.Go)       { r.did = append(r.did, "resume") }
func (r *ring) Send(int, wire.Message) { r.did = append(r.did, "send") }

// TestAlone: an asker holds a pause from when the engine has stopped until the asker ends it. What was under way in a
// world that is over stops no other.
func TestAlone(t *testing.T) {
	for _, over := range []bool{false, true} {
		r, l := &ring{epoch: 1}, loop.New()
		p := pauses.New(0, r, l, slog.New(slog.DiscardHandler))
		p.Step(t.Context(), pause.Event{World: &pause.WorldHosts{Epoch: 1, Members: []int{0}}})
		held := false
		request := p.NextRequest()
		p.Want(t.Context(), request, func() { held = true }, func(reason string) { t.Errorf("refused: %s", reason) })
		if held {
			t.Fatal("held before the engine has stopped")
		}
		if over {
			r.epoch = 2
		}
		l.Wait()
		(<-l.C())()
		if held == over {
			t.Fatalf("world over %v, held %v", over, held)
		}
		if over {
			continue
		}
		p.End(t.Context(), pause.Done{Request: request})
		if count, total := p.Totals(); p.Paused() || count != 1 || total <= 0 || !slices.Equal(r.did, []string{"pause", "resume"}) {
			t.Errorf("paused %v, %d times, for %v: %q", p.Paused(), count, total, r.did)
		}
	}
}
