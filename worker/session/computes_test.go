package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/worker/rank"
	"gorun/worker/session"
)

// All ranks that wait for a name hear at once of one that has something else for it, although others compute after they
// have submitted, and do not look; those hear of it when they do. Then the job goes on.
func TestMismatchWithWhoComputes(t *testing.T) {
	const computing = 2 // ranks of three; they compute until the last one has its error
	shorter := func(o *rank.Operation) { o.Shape, o.In.Bytes, o.Out.Bytes = []int{2}, 8, 8 }
	for _, c := range []struct {
		name   string
		change func(o *rank.Operation)
		words  []string // that show what differs
		looks  time.Duration
	}{
		{"shape", shorter, []string{"[2]"}, time.Hour},
		{"kind", func(o *rank.Operation) { o.Kind = collective.Broadcast; shorter(o) }, []string{"broadcast"}, time.Hour},
		{"way", func(o *rank.Operation) { o.Coding = kernel.CodingFloat16 }, []string{"wire compression fp16"}, time.Hour},
		{"looks", shorter, []string{"[2]"}, 200 * time.Millisecond},
	} {
		for _, n := range []int{4, 4096} { // in a plain slot, and in a wide one
			t.Run(fmt.Sprint(c.name, n), func(t *testing.T) {
				h, _ := startCounted(t, 3)
				heard := make(chan struct{})
				brought := make(chan struct{}, computing)
				ranks(t, h, func(r *rank.Session) error {
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
						for range computing {
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

// A rank that submits to the daemon gets the sum although those in the slot compute, and so does one that waits in the
// slot. Ranks that compute get it when they look, and then all take a slot again.
func TestSumWithWhoComputes(t *testing.T) {
	const byDaemon, inSlot, computes = 2, 1, 0 // ranks
	h := startConfigured(t, 3, collective.Config{Coding: kernel.CodingFloat16}, func(e session.Engine) session.Engine { return e })
	h.begin()
	brought, heard := make(chan struct{}), make(chan struct{})
	ranks(t, h, func(r *rank.Session) error {
		x, err := newVector(r, "x", 4)
		if err != nil {
			return err
		}
		mine := float32(int(1) << r.Welcome.Rank)
		sum := func(o *rank.Operation) error {
			x.set(func(int) float32 { return mine })
			if _, err := r.Do(o); err != nil {
				return err
			}
			return x.check(func(int) float32 { return 7 })
		}
		for range 5 {
			if err := sum(&x.op); err != nil {
				return err
			}
		}
		switch r.Welcome.Rank {
		case byDaemon:
			<-brought
			asked := x.op
			asked.Coding = kernel.CodingFloat16 // what the job does anyway, so it is the same sum, but not what the slot is for
			err = sum(&asked)
			close(heard)
		case inSlot:
			<-brought
			err = sum(&x.op)
		case computes:
			x.set(func(int) float32 { return mine })
			var part uint32
			if part, err = r.Submit(&x.op); err != nil {
				return err
			}
			close(brought)
			select {
			case <-heard:
			case <-time.After(10 * time.Second):
				return fmt.Errorf("rank %d waits for one that computes", byDaemon)
			}
			if _, err := r.Wait(part); err != nil {
				return err
			}
			err = x.check(func(int) float32 { return 7 })
		}
		for range 5 {
			if err == nil {
				err = sum(&x.op)
			}
		}
		return err
	})
}

// Who waits for a slot to which a rank that joined does not come gets the sum, although another one that is in it
// computes.
func TestSumBesideWhoJoins(t *testing.T) {
	const joins, waits, computes = 2, 1, 0 // ranks
	h, _ := startCounted(t, 3)
	brought, heard := make(chan struct{}, 2), make(chan struct{})
	ranks(t, h, func(r *rank.Session) error {
		x, err := newVector(r, "x", 4)
		if err != nil {
			return err
		}
		mine := float32(int(1) << r.Welcome.Rank)
		bring := func() (uint32, error) {
			x.set(func(int) float32 { return mine })
			return r.Submit(&x.op)
		}
		for range 5 {
			part, err := bring()
			if err != nil {
				return err
			}
			if _, err := r.Wait(part); err != nil {
				return err
			}
		}
		if r.Welcome.Rank != joins {
			part, err := bring()
			if err != nil {
				return err
			}
			brought <- struct{}{}
			if r.Welcome.Rank == computes {
				select {
				case <-heard:
				case <-time.After(10 * time.Second):
					return fmt.Errorf("rank %d waits for one that computes", waits)
				}
			}
			if _, err := r.Wait(part); err != nil {
				return err
			}
			if r.Welcome.Rank == waits {
				close(heard)
			}
			if err := x.check(func(int) float32 { return 3 }); err != nil {
				return err
			}
		} else {
			for range 2 {
				<-brought
			}
		}
		_, err = r.Do(&rank.Operation{Kind: collective.Join, Name: "join"})
		return err
	})
}

// Who asks for what the job does anyway has nothing else for a slot's name, and all get the sum.
func TestNoMismatchWithWhatTheJobSays(t *testing.T) {
	h := startConfigured(t, 2, collective.Config{Coding: kernel.CodingFloat16}, func(e session.Engine) session.Engine { return e })
	h.begin()
	brought := make(chan struct{})
	ranks(t, h, func(r *rank.Session) error {
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
			if _, err := r.Wait(part); err != nil {
				return err
			}
		}
		return x.check(func(int) float32 { return 2 })
	})
}
