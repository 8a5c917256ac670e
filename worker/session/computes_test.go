package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/worker/rank"
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
				ranks(t, h, func(r member) {
					x := r.vector("x", n)
					for range 5 {
						r.do(&x.op)
					}
					wrong := func(err error) {
						for _, word := range append([]string{"rank 2", fmt.Sprintf("[%d]", n)}, c.words...) {
							if err == nil || !strings.Contains(err.Error(), word) {
								r.must(fmt.Errorf("heard %w, which does not say %s", err, word))
							}
						}
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
							t.Errorf("the error came after %v", late)
						}
						close(heard)
						wrong(err)
					} else {
						part := r.submit(&x.op)
						brought <- struct{}{}
						select {
						case <-heard:
						case <-time.After(c.looks):
						}
						_, err := r.Wait(part)
						wrong(err)
					}
					for range 5 {
						x.set(func(int) float32 { return 1 })
						r.do(&x.op)
						r.must(x.check(func(int) float32 { return 3 }))
					}
				})
			})
		}
	}
}

// A rank that submits to the daemon gets the sum although those in the slot compute, and so does one that waits in the
// slot. Ranks that compute get it when they look, and then all take a slot again.
func TestSumWithWhoComputes(t *testing.T) {
	const byDaemon, inSlot, computes = 2, 1, 0 // ranks
	h := startConfigured(t, 3, collective.Config{Coding: kernel.CodingFloat16}, nil).begin()
	brought, heard := make(chan struct{}), make(chan struct{})
	ranks(t, h, func(r member) {
		x := r.vector("x", 4)
		mine := float32(int(1) << r.Welcome.Rank)
		sum := func(o *rank.Operation) {
			x.set(func(int) float32 { return mine })
			r.do(o)
			r.must(x.check(func(int) float32 { return 7 }))
		}
		for range 5 {
			sum(&x.op)
		}
		switch r.Welcome.Rank {
		case byDaemon:
			<-brought
			asked := x.op
			asked.Coding = kernel.CodingFloat16 // what the job does anyway, so it is the same sum, but not what the slot is for
			sum(&asked)
			close(heard)
		case inSlot:
			<-brought
			sum(&x.op)
		case computes:
			x.set(func(int) float32 { return mine })
			part := r.submit(&x.op)
			close(brought)
			select {
			case <-heard:
			case <-time.After(10 * time.Second):
				r.must(fmt.Errorf("rank %d waits for one that computes", byDaemon))
			}
			r.wait(part)
			r.must(x.check(func(int) float32 { return 7 }))
		}
		for range 5 {
			sum(&x.op)
		}
	})
}

// Who waits for a slot to which a rank that joined does not come gets the sum, although another one that is in it
// computes.
func TestSumBesideWhoJoins(t *testing.T) {
	const joins, waits, computes = 2, 1, 0 // ranks
	h, _ := startCounted(t, 3)
	brought, heard := make(chan struct{}, 2), make(chan struct{})
	ranks(t, h, func(r member) {
		x := r.vector("x", 4)
		mine := float32(int(1) << r.Welcome.Rank)
		bring := func() uint32 {
			x.set(func(int) float32 { return mine })
			return r.submit(&x.op)
		}
		for range 5 {
			r.wait(bring())
		}
		if r.Welcome.Rank != joins {
			part := bring()
			brought <- struct{}{}
			if r.Welcome.Rank == computes {
				select {
				case <-heard:
				case <-time.After(10 * time.Second):
					r.must(fmt.Errorf("rank %d waits for one that computes", waits))
				}
			}
			r.wait(part)
			if r.Welcome.Rank == waits {
				close(heard)
			}
			r.must(x.check(func(int) float32 { return 3 }))
		} else {
			for range 2 {
				<-brought
			}
		}
		r.do(&rank.Operation{Kind: collective.Join, Name: "join"})
	})
}

// Who asks for what the job does anyway has nothing else for a slot's name, and all get the sum.
func TestNoMismatchWithWhatTheJobSays(t *testing.T) {
	h := startConfigured(t, 2, collective.Config{Coding: kernel.CodingFloat16}, nil).begin()
	brought := make(chan struct{})
	ranks(t, h, func(r member) {
		x := r.vector("x", 4)
		for range 5 {
			x.set(func(int) float32 { return 1 })
			r.do(&x.op)
		}
		x.set(func(int) float32 { return 1 })
		if r.Welcome.Rank == 1 {
			<-brought
			x.op.Coding = kernel.CodingFloat16
			r.do(&x.op)
		} else {
			part := r.submit(&x.op)
			close(brought)
			r.wait(part)
		}
		r.must(x.check(func(int) float32 { return 2 }))
	})
}
