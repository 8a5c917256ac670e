package collective_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"gorun/collective"
	"gorun/collective/link"
	"gorun/contrib/must"
)

// What is measured over loopback is not exact, but a cost, and probes never reach an engine: with every
// segment of a peer the engine would log why it refuses it.
func TestMeasure(t *testing.T) {
	w := newRealWorld(t, 2, 1, collective.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cost, err := w.probers[0].Measure(ctx, 1)
	must.Do(t, err)
	if !cost.Sound() || cost.Alpha > 0.1 || cost.Beta > 1e-6 {
		t.Errorf("loopback costs %+v", cost)
	}
	if _, err := w.probers[1].Measure(ctx, 0); err != nil {
		t.Errorf("the other way: %v", err)
	}
}

// Who never answers costs patience, and an answer that no one waits for is dropped.
func TestMeasureGivesUp(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Millisecond, fmt.Errorf("no answer"))
	defer cancel()
	p := collective.NewLinkProber(nil, nowhere{})
	if _, err := p.Measure(ctx, 1); err == nil || err.Error() != "measure link to host 1: no answer" {
		t.Errorf("silence was measured: %v", err)
	}
	for range 100 {
		p.Deliver(1, link.Header{Kind: link.Data, Op: 0x676f72756e70726f, Step: 2, Gen: 1}, nil)
	}
}

type nowhere struct{}

func (nowhere) Send(int, *link.Segment) {}
