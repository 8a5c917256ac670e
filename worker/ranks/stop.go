package ranks

import (
	"context"
	"syscall"
	"time"

	"gorun/worker/loop"
	"gorun/worker/proc"
)

// Stops ends all processes.
type Stops struct {
	loop.Component
	group     *proc.Group
	processes processes
	begun     bool // all are to end
	underWay  int  // orders to stop that are being carried out
}

// Signal sends a signal to all processes.
func (s *Stops) Signal(number int) { s.group.Signal(syscall.Signal(number)) }

// Stop ends all ranks; it may be called again with less grace.
func (s *Stops) Stop(ctx context.Context, grace time.Duration) { s.stopBy(ctx, s.group.Stop, grace) }

// Interrupt is Stop for ranks that get INT first.
func (s *Stops) Interrupt(ctx context.Context, grace time.Duration) {
	s.stopBy(ctx, s.group.Interrupt, grace)
}

// KillAfter ends all ranks at once when first has returned.
func (s *Stops) KillAfter(ctx context.Context, first func()) {
	s.stopBy(ctx, func(ctx context.Context, grace time.Duration) error {
		first()
		return s.group.Stop(ctx, grace)
	}, 0)
}

func (s *Stops) stopBy(ctx context.Context, end func(context.Context, time.Duration) error, grace time.Duration) {
	s.begun = true
	s.underWay++
	ctx = context.WithoutCancel(ctx)
	s.Loop.Go(func() {
		err := end(ctx, grace)
		s.Loop.Post(ctx, func() {
			s.underWay--
			if err != nil {
				s.Log.Warn("stop ranks", "error", err)
			}
		})
	})
}

// Over reports whether all ranks were to end and have.
func (s *Stops) Over() bool { return s.begun && s.underWay == 0 && len(s.processes.running()) == 0 }
