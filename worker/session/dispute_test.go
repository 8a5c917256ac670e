package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/worker/session"
)

// All ranks that wait for a lane's name hear within a second of one that has something else for it, although others compute
// after they have brought their parts, and do not look; those hear of it when they do. Then the job goes on.
func TestMismatchWithWhoComputes(t *testing.T) {
	const ranksInLane = 2 // of three; they compute until the last one has its error
	shorter := func(o *session.Operation) { o.Shape, o.In.Bytes, o.Out.Bytes = []int{2}, 8, 8 }
	for _, c := range []struct {
		name   string
		change func(o *session.Operation)
		words  []string // that tell what differs
		looks  time.Duration
	}{
		{"shape", shorter, []string{"[2]"}, time.Hour},
		{"kind", func(o *session.Operation) { o.Kind = collective.Broadcast; shorter(o) }, []string{"broadcast"}, time.Hour},
		{"way", func(o *session.Operation) { o.Coding = kernel.CodingFloat16 }, []string{"wire compression fp16"}, time.Hour},
		// Who computes looks when the daemon speaks for it, or just before or after.
		{"looks", shorter, []string{"[2]"}, 200 * time.Millisecond},
	} {
		for _, n := range []int{4, 4096} { // in a plain lane, and in a wide one
			t.Run(fmt.Sprint(c.name, n), func(t *testing.T) {
				h, _ := startCounted(t, 3)
				heard := make(chan struct{})
				brought := make(chan struct{}, ranksInLane)
				ranks(t, h, func(r *session.Rank) error {
					x, err := newVector(r, "x", n)
					if err != nil {
						return err
					}
					for range 5 {
						if _, err := r.Do(&x.op); err != nil {
							return err
						}
					}
					wrong := func(err error) error {
						for _, word := range append([]string{"rank 2", fmt.Sprintf("[%d]", n)}, c.words...) {
							if err == nil || !strings.Contains(err.Error(), word) {
								return fmt.Errorf("rank %d heard %w, which does not say %s", r.Welcome.Rank, err, word)
							}
						}
						return nil
					}
					if r.Welcome.Rank == 2 {
						for range ranksInLane {
							<-brought
						}
						defer func() {
							select {
							case <-heard:
							default:
								close(heard)
							}
						}()
						o := x.op
						c.change(&o)
						since := time.Now()
						_, err := r.Do(&o)
						if late := time.Since(since); late > 5*time.Second { // a second, and what a busy machine takes
							return fmt.Errorf("the error came after %v", late)
						}
						close(heard)
						if err := wrong(err); err != nil {
							return err
						}
					} else {
						part, err := r.Submit(&x.op)
						if err != nil {
							return err
						}
						brought <- struct{}{}
						select {
						case <-heard:
						case <-time.After(c.looks):
						}
						if _, err := r.Wait(part); wrong(err) != nil {
							return wrong(err)
						}
					}
					for range 5 {
						x.set(func(int) float32 { return 1 })
						if _, err := r.Do(&x.op); err != nil {
							return err
						}
						if err := x.check(func(int) float32 { return 3 }); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}

// Who asks for what the job does anyway has nothing else for a lane's name, and all get the sum.
func TestNoMismatchWithWhatTheJobSays(t *testing.T) {
	h := startConfigured(t, 2, collective.Config{Coding: kernel.CodingFloat16}, func(e session.Engine) session.Engine { return e })
	h.begin()
	brought := make(chan struct{})
	ranks(t, h, func(r *session.Rank) error {
		x, err := newVector(r, "x", 4)
		if err != nil {
			return err
		}
		for range 5 {
			x.set(func(int) float32 { return 1 })
			if _, err := r.Do(&x.op); err != nil {
				return err
			}
		}
		x.set(func(int) float32 { return 1 })
		if r.Welcome.Rank == 1 {
			<-brought
			x.op.Coding = kernel.CodingFloat16
			if _, err := r.Do(&x.op); err != nil {
				return err
			}
		} else {
			part, err := r.Submit(&x.op)
			if err != nil {
				return err
			}
			close(brought)
			time.Sleep(time.Second) // the daemon would have spoken for it
			if _, err := r.Wait(part); err != nil {
				return err
			}
		}
		return x.check(func(int) float32 { return 2 })
	})
}
