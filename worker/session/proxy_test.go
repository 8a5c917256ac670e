package session_test

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
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

// Who brings its part to the daemon gets the sum although those in the lane compute, and so does whoever waits in the lane. Those
// that compute get it when they look, and then all take a lane again.
func TestSumWithWhoComputes(t *testing.T) {
	const byDaemon, inLane, computes = 2, 1, 0 // ranks
	h := startConfigured(t, 3, collective.Config{Coding: kernel.CodingFloat16}, func(e session.Engine) session.Engine { return e })
	h.begin()
	brought, heard := make(chan struct{}), make(chan struct{})
	ranks(t, h, func(r *session.Rank) error {
		x, err := newVector(r, "x", 4)
		if err != nil {
			return err
		}
		mine := float32(int(1) << r.Welcome.Rank)
		sum := func(o *session.Operation) error {
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
			asked.Coding = kernel.CodingFloat16 // what the job does anyway, so it is the same sum, but not what the lane is for
			err = sum(&asked)
			close(heard)
		case inLane:
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

// Who waits for a lane to which a rank that joined does not come gets the sum, although another one that is in it computes.
func TestSumBesideWhoJoins(t *testing.T) {
	const joins, waits, computes = 2, 1, 0 // ranks
	h, _ := startCounted(t, 3)
	brought, heard := make(chan struct{}, 2), make(chan struct{})
	ranks(t, h, func(r *session.Rank) error {
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
		_, err = r.Do(&session.Operation{Kind: collective.Join, Name: "join"})
		return err
	})
}

// enter brings numbers to the first use of a lane.
func (c *laneClient) enter(at uint64, ranks, n int, x float32) {
	stride := (4*n + 63) &^ 63
	buffer := c.lanes[int(at)+64*ranks+(2*c.rank+1)*stride:]
	for i := range n {
		le.PutUint32(buffer[4*i:], math.Float32bits(x))
	}
	atomic.StoreUint64(c.word(at+uint64(64*c.rank)), 2)
}

// What a rank that joins and others have in a lane is handed in, and nobody has to look. Who comes for it later gets it.
func TestJoinBringsWhatIsInLanes(t *testing.T) {
	h, ranks := startLanes(t, 3)
	at := all(ranks, "x", 16, always)[0]
	for i, x := range []float32{1, 2} {
		ranks[i].enter(at, 3, 16, x)
	}
	for _, i := range []int{0, 2} {
		o := operation{handle: 77, kind: collective.Join, in: none, out: none, name: "join"}
		ranks[i].send(o.encode())
	}
	eventually(t, "parts of those in the lane", func() bool { return h.engine.partsOf("x") == 2 })
	submitted := func(i int, x float32) {
		for j := range 16 {
			le.PutUint32(ranks[i].memory[4*j:], math.Float32bits(x))
		}
		ranks[i].submit("x", 16, true)
	}
	check := func(i int, want float32) {
		t.Helper()
		if b, _ := ranks[i].expect(68); le.Uint32(b[8:]) != 0 || le.Uint64(b[16:]) != 0 {
			t.Errorf("rank %d: %x, want a success without a lane", i, b)
		}
		if got := floats(ranks[i].memory[:64]); got[0] != want || got[15] != want {
			t.Errorf("rank %d got %v, want %v", i, got, want)
		}
	}
	submitted(0, 100) // what it has in the lane counts, which it has brought already
	submitted(2, 4)   // the engine here takes no zeros for who joined
	check(0, 7)
	check(2, 7)
	submitted(1, 200)
	check(1, 7)
	for i := range ranks {
		submitted(i, 10)
	}
	for i := range ranks {
		check(i, 30)
	}
}

// Who gave a part up that the daemon has handed in brings another one next, not that; and nobody gets what it did not bring.
func TestGivenUpAfterAll(t *testing.T) {
	for _, gaveUp := range []bool{true, false} {
		h, ranks := startLanes(t, 2)
		at := all(ranks, "x", 16, always)[0]
		ranks[0].enter(at, 2, 16, 1)
		atomic.StoreUint64(ranks[1].word(at+64), 1)
		ranks[1].submit("x", 16, true)
		ranks[1].lane()
		if gaveUp {
			atomic.StoreUint64(ranks[0].word(at+8), 1)
			atomic.StoreUint64(ranks[0].word(at), 3)
			ranks[0].submit("x", 16, true)
			eventually(t, "the next part", func() bool { return h.engine.partsOf("x") == 1 })
			ranks[1].submit("x", 16, true)
			if lanes := []uint64{ranks[0].lane(), ranks[1].lane()}; lanes[0] == 0 || lanes[0] != lanes[1] {
				t.Errorf("the next use brings lanes %v", lanes)
			}
			continue
		}
		o := allreduce(99, ranks[0].region, 16, "x")
		o.op = kernel.Average
		ranks[0].send(o.encode())
		b, _ := ranks[0].expect(67)
		if !strings.Contains(string(b), "something else in the lane") {
			t.Errorf("%q", b)
		}
	}
}

// A part that its rank brings just when the daemon would have handed it in counts once.
func TestBroughtAsItIsHandedIn(t *testing.T) {
	h, ranks := startLanes(t, 2)
	at := all(ranks, "x", 16, always)[0]
	ranks[0].enter(at, 2, 16, 1)
	ranks[1].submit("x", 16, true)
	eventually(t, "the other part", func() bool { return h.engine.partsOf("x") == 1 })
	var calls atomic.Int32
	slow := func(call string, _ int, _ string) {
		if call == "coding" && calls.Add(1) == 2 { // the daemon has looked whether it handed that in, and does not know of the part yet
			time.Sleep(time.Second)
		}
	}
	h.engine.before.Store(&slow)
	ranks[0].submit("x", 16, true)
	for i, c := range ranks {
		if b, _ := c.expect(68); le.Uint32(b[8:]) != 0 {
			t.Errorf("rank %d: %x, want a success", i, b)
		}
	}
	if n := h.engine.partsOf("x"); calls.Load() < 2 || n != 0 {
		t.Errorf("%d parts are left after %d calls, want none after 2 or more", n, calls.Load())
	}
}

// The engine hears of a part that is handed in for a rank before it hears that the rank joins.
func TestJoinsAsItIsHandedIn(t *testing.T) {
	h, ranks := startLanes(t, 3)
	at := all(ranks, "x", 16, always)[0]
	ranks[0].enter(at, 3, 16, 1)
	handing, heard := make(chan struct{}), make(chan int, 1)
	slow := func(call string, rank int, name string) {
		switch {
		case call == "submit" && rank == 0 && name == "x":
			close(handing)
			time.Sleep(500 * time.Millisecond)
		case call == "submit" && name == "join":
			heard <- h.engine.partsOf("x")
		}
	}
	h.engine.before.Store(&slow)
	for _, c := range ranks[1:] {
		c.submit("x", 16, true)
		if c.rank == 1 {
			eventually(t, "a part", func() bool { return h.engine.partsOf("x") == 1 })
			h.engine.holdBack()
		}
	}
	<-handing
	o := operation{handle: 77, kind: collective.Join, in: none, out: none, name: "join"}
	ranks[0].send(o.encode())
	if n := <-heard; n != 3 {
		t.Errorf("rank 0 joined when %d parts of 3 were there", n)
	}
}

// Who gave a use up, and brings the next part of the name to the daemon before the others come to that use, gets their next one.
func TestGivenUpBeforeOthersCome(t *testing.T) {
	h, ranks := startLanes(t, 2)
	at := all(ranks, "x", 16, always)[0]
	ranks[0].enter(at, 2, 16, 1)
	atomic.StoreUint64(ranks[0].word(at+8), 1)
	atomic.StoreUint64(ranks[0].word(at), 3)
	ranks[0].submit("x", 16, true)
	eventually(t, "the next part", func() bool { return h.engine.partsOf("x") == 1 })
	ranks[1].enter(at, 2, 16, 1) // all are there
	time.Sleep(time.Second)      // the daemon has seen that
	atomic.StoreUint64(ranks[1].word(at+64), 4)
	if b, _ := ranks[0].expect(68); le.Uint32(b[8:]) != 0 {
		t.Errorf("%x, want a success", b)
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
