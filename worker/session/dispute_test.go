package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/collective"
	"gorun/worker/session"
)

// All ranks that wait for a lane's name hear within a second of one that has something else for it, although others compute
// after they have brought their parts, and do not look; those hear of it when they do. Then the job goes on.
func TestMismatchWithWhoComputes(t *testing.T) {
	const ranksInLane = 2              // of three; they compute until the last one has its error
	for _, n := range []int{4, 4096} { // in a plain lane, and in a wide one
		for _, kind := range []collective.Kind{collective.Allreduce, collective.Broadcast, 0} {
			looks := time.Hour
			if kind == 0 { // who computes looks when the daemon speaks for it, or just before or after
				kind, looks = collective.Allreduce, 200*time.Millisecond
			}
			t.Run(fmt.Sprint(n, kind, looks), func(t *testing.T) {
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
						if err == nil || !strings.Contains(err.Error(), "rank 2") || !strings.Contains(err.Error(), fmt.Sprintf("[%d]", n)) ||
							kind == collective.Broadcast && !strings.Contains(err.Error(), "broadcast") || kind == collective.Allreduce && !strings.Contains(err.Error(), "[2]") {
							return fmt.Errorf("rank %d heard %w", r.Welcome.Rank, err)
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
						o.Kind, o.Shape = kind, []int{2}
						o.In.Bytes, o.Out.Bytes = 8, 8
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
						case <-time.After(looks):
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
