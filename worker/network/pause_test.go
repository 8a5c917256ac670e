package network

import (
	"testing"
	"time"

	"gorun/worker/loop"
)

// A pause of RDMA begins before PauseRDMA returns, so that a later ResumeRDMA ends it; what waits for devices does not
// keep the caller.
func TestPauseRDMA(t *testing.T) {
	var paused switched
	drained := make(chan struct{})
	paused.drain = func(time.Duration) { <-drained }
	l := loop.New()
	n := &Network{cfg: Config{Component: loop.Component{Loop: l}}, transport: &paused}
	then := false
	n.PauseRDMA(t.Context(), func() { then = true })
	if !paused.now {
		t.Error("the pause has not begun")
	}
	n.ResumeRDMA()
	close(drained)
	(<-l.C())()
	l.Wait()
	if paused.now || !then {
		t.Errorf("in the end paused: %v, called back: %v", paused.now, then)
	}
}

// switched is a transport that is paused or not.
type switched struct {
	transport
	now   bool
	drain func(time.Duration)
}

func (s *switched) Pause() func(time.Duration) { s.now = true; return s.drain }
func (s *switched) Resume()                    { s.now = false }
