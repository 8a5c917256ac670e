package session_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/contrib/must"
	"gorun/worker/rank"
	"gorun/worker/session"
)

// counted returns how many parts have reached the engine.
type counted struct {
	session.Engine
	mu    sync.Mutex
	parts map[string]int
}

func (c *counted) Submit(rank int, r collective.Request) error {
	c.mu.Lock()
	c.parts[r.Name]++
	c.mu.Unlock()
	return c.Engine.Submit(rank, r)
}

func (c *counted) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts[name]
}

// startCounted starts a real engine and a world of this host alone.
func startCounted(t testing.TB, size int) (*host, *counted) {
	t.Helper()
	var c *counted
	h := startConfigured(t, size, collective.Config{}, func(e session.Engine) session.Engine {
		c = &counted{Engine: e, parts: map[string]int{}}
		return c
	})
	h.begin()
	return h, c
}

// vector is a tensor of float32 in shared memory.
type vector struct {
	at rank.Piece
	op rank.Operation
}

func newVector(r *rank.Session, name string, n int) (*vector, error) {
	m, err := r.Alloc(4 * n)
	if err != nil {
		return nil, err
	}
	at := rank.Piece{Memory: m, Bytes: 4 * n}
	return &vector{at, rank.Operation{Kind: collective.Allreduce, Name: name, Type: kernel.Float32, Op: kernel.Sum, Shape: []int{n}, In: at, Out: at}}, nil
}

func (v *vector) set(f func(i int) float32) {
	for i := range v.at.Bytes / 4 {
		le.PutUint32(v.at.Memory.Bytes[4*i:], math.Float32bits(f(i)))
	}
}

func (v *vector) check(f func(i int) float32) error {
	for i, got := range floats(v.at.Memory.Bytes[:v.at.Bytes]) {
		if want := f(i); got != want {
			return fmt.Errorf("element %d is %v, want %v", i, got, want)
		}
	}
	return nil
}

// Only the first use of a name reaches the engine, and the results of all are right.
func TestRankTakesSlot(t *testing.T) {
	for _, size := range []int{2, 3, 5} {
		h, engine := startCounted(t, size)
		const rounds = 60
		ranks(t, h, func(r member) {
			for _, op := range []kernel.Op{kernel.Sum, kernel.Average} {
				for _, n := range []int{1, 33, 16384} {
					v := r.vector(fmt.Sprintf("x.%d.%d", op, n), n)
					v.op.Op = op
					by := float32(1)
					if op == kernel.Average {
						by = float32(1 / float64(size))
					}
					for k := range rounds {
						v.set(func(i int) float32 { return float32((r.Welcome.Rank + 1) * (i%7 + k)) })
						r.do(&v.op)
						r.must(v.check(func(i int) float32 { return float32(size*(size+1)/2*(i%7+k)) * by }))
					}
				}
			}
		})
		for _, op := range []kernel.Op{kernel.Sum, kernel.Average} {
			for _, n := range []int{1, 33, 16384} {
				if name := fmt.Sprintf("x.%d.%d", op, n); engine.of(name) != size {
					t.Errorf("%d parts of %s came to the engine of %d ranks, want one of each", engine.of(name), name, size)
				}
			}
		}
	}
}

// What slots are not for goes to the engine every time, with the usual results.
func TestRankSlotIsRefused(t *testing.T) {
	h, engine := startCounted(t, 2)
	const rounds = 5
	ranks(t, h, func(r member) {
		for _, change := range []func(o *rank.Operation){
			func(o *rank.Operation) { o.Name, o.Op = "max", kernel.Max },
			func(o *rank.Operation) { o.Name, o.Post = "scaled", 2 },
			func(o *rank.Operation) { o.Name, o.Kind = "broadcast", collective.Broadcast },
		} {
			v := r.vector("", 8)
			change(&v.op)
			for range rounds {
				r.do(&v.op)
			}
		}
		v := r.vector("long", 16385) // a rank that does not stay cannot do its part of it
		for range rounds {
			r.wait(r.submit(&v.op))
		}
	})
	for _, name := range []string{"max", "scaled", "broadcast", "long"} {
		if engine.of(name) != 2*rounds {
			t.Errorf("%d parts of %s came to the engine, want %d", engine.of(name), name, 2*rounds)
		}
	}
}

// Another tensor under the name of a slot is met by the engine: all ranks get it right, or its error if only one
// changed.
func TestRankLeavesSlot(t *testing.T) {
	h, engine := startCounted(t, 3)
	ranks(t, h, func(r member) {
		short := r.vector("x", 8)
		long := r.vector("x", 100)
		do := func(v *vector) error {
			v.set(func(int) float32 { return 1 })
			if _, err := r.Do(&v.op); err != nil {
				return err
			}
			return v.check(func(int) float32 { return 3 })
		}
		for range 40 { // more often than slots of a name are opened again
			for _, v := range []*vector{short, short, short, long} {
				r.must(do(v))
			}
		}
		for range 3 {
			r.must(do(short))
		}
		var e *collective.Error
		v := short
		if r.Welcome.Rank == 1 {
			v = long
		}
		if err := do(v); !errors.As(err, &e) || e.Code != collective.CodeMismatch || !strings.Contains(e.Text, "rank 1") {
			t.Errorf("rank 1 changed its tensor, and what came of it is %v", err)
		}
		for range 5 { // the job goes on
			r.must(do(short))
		}
		for _, what := range []string{"compression fp16", "float32[2,4]"} {
			other := *short
			other.op.Name = "other." + what[:5]
			for range 3 {
				r.must(do(&other))
			}
			switch {
			case r.Welcome.Rank < 2:
			case what == "compression fp16":
				other.op.Coding = kernel.CodingFloat16
			default:
				other.op.Shape = []int{2, 4}
			}
			if err := do(&other); !errors.As(err, &e) || e.Code != collective.CodeMismatch || !strings.Contains(e.Text, what) {
				t.Errorf("rank 2 brought %s to a slot, and what came of it is %v", what, err)
			}
		}
	})
	if engine.of("x") < 3*40 {
		t.Errorf("%d parts came to the engine, fewer than changed", engine.of("x"))
	}
}

// A rank that waits in a slot hears of the one that left, and of the end of its context.
func TestRankInSlotIsReleased(t *testing.T) {
	for _, name := range []string{"leaves", "context"} {
		t.Run(name, func(t *testing.T) {
			h, _ := startCounted(t, 2)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			met := make(chan struct{})
			ended := make(chan error, 1)
			go func() {
				ended <- func() error {
					r, err := rank.Join(ctx, h.name, 1, token(1))
					if err != nil {
						return err
					}
					defer r.Close()
					v, err := newVector(r, "x", 4)
					for k := 0; err == nil; k++ {
						if k == 5 {
							close(met)
						}
						_, err = r.Do(&v.op)
					}
					return err
				}()
			}()
			r, err := rank.Join(context.Background(), h.name, 0, token(0))
			must.Do(t, err)
			defer r.Close()
			v, err := newVector(r, "x", 4)
			for k := 0; k < 5 && err == nil; k++ {
				_, err = r.Do(&v.op)
			}
			must.Do(t, err)
			<-met
			must.Soon(t, "rank 1 waits", func() bool { return len(h.server.Waiting(time.Now())) == 1 })
			if name == "leaves" {
				r.Close()
			} else {
				cancel()
			}
			err = <-ended
			if err == nil || name == "leaves" && !strings.Contains(err.Error(), "rank 0 on host1 left") {
				t.Errorf("the operation of one rank of two ended with %v", err)
			}
		})
	}
}

// What was given up in a slot fails on the rank that came too late for it as well, and so does everything after it.
func TestRankInSlotIsGivenUp(t *testing.T) {
	h, _ := startCounted(t, 2)
	late := make(chan struct{})
	var used sync.WaitGroup // the slot, by both
	used.Add(2)
	failed := func(err error) error {
		var e *collective.Error
		if !errors.As(err, &e) || e.Code != collective.CodeShutdown || !strings.Contains(e.Text, "given up") {
			return fmt.Errorf("what was given up ended with %v", err)
		}
		return nil
	}
	go func() {
		defer close(late)
		used.Wait()
		must.Soon(t, "rank 0 waits", func() bool { return len(h.server.Waiting(time.Now())) == 1 })
		h.server.GiveUp(&collective.Error{Code: collective.CodeShutdown, Text: "x was given up"}, nil)
	}()
	ranks(t, h, func(r member) {
		use := func() *vector {
			defer used.Done()
			v := r.vector("x", 4)
			for range 4 {
				r.do(&v.op)
			}
			return v
		}
		v := use()
		if r.Welcome.Rank == 1 {
			<-late
		}
		for range 2 {
			_, err := r.Do(&v.op)
			r.must(failed(err))
		}
	})
	<-late
}

// An operation in a slot allocates nothing.
func TestRankSlotAlloc(t *testing.T) {
	h, _ := startCounted(t, 2)
	const rounds = 1000
	ranks(t, h, func(r member) {
		short, long := r.vector("short", 16), r.vector("long", wideN)
		do := func() {
			for range rounds {
				r.do(&short.op, &long.op)
			}
		}
		do()
		if r.Welcome.Rank == 1 {
			for range 4 { // as often as AllocsPerRun calls it
				do()
			}
			return
		}
		if n := testing.AllocsPerRun(3, do); n > rounds/10 {
			t.Errorf("%.0f allocations for %d operations", n, rounds)
		}
	})
}

// A rank that waits for another one for long sleeps, in a slot too.
func TestRankWaitsAsleep(t *testing.T) {
	h, _ := startCounted(t, 2)
	ranks(t, h, func(r member) {
		v := r.vector("x", 4)
		for range 4 {
			r.do(&v.op)
		}
		before := busy(t)
		if r.Welcome.Rank == 0 {
			time.Sleep(300 * time.Millisecond)
		}
		r.do(&v.op)
		if spent := busy(t) - before; spent > 100*time.Millisecond {
			t.Errorf("waited 300 ms with %v of CPU time", spent)
		}
	})
}

// busy is the CPU time of this process.
func busy(t *testing.T) time.Duration {
	var u unix.Rusage
	must.Do(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
