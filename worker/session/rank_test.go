package session_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/contrib/must"
	"gorun/worker/rank"
)

// ranks joins size ranks and runs f on each, in a goroutine of its own.
func ranks(t *testing.T, h *host, f func(r *rank.Session) error) {
	t.Helper()
	var wg sync.WaitGroup
	for self := range h.engine.size {
		wg.Go(func() {
			r, err := rank.Join(context.Background(), h.name, self, token(self))
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(f(r), r.Close()); err != nil {
				t.Errorf("rank %d: %v", self, err)
			}
		})
	}
	wg.Wait()
}

func floats(b []byte) (v []float32) {
	for ; len(b) > 0; b = b[4:] {
		v = append(v, math.Float32frombits(le.Uint32(b)))
	}
	return v
}

func TestRank(t *testing.T) {
	h := start(t, 3)
	h.begin()
	ranks(t, h, func(r *rank.Session) error {
		if r.Welcome.Size != 3 || r.Welcome.Hosts != 1 || r.Welcome.LocalSize != 3 {
			t.Errorf("welcome %+v", r.Welcome)
		}
		m, err := r.Alloc(1 << 20)
		if err != nil {
			return err
		}
		le.PutUint32(m.Bytes[8:], math.Float32bits(float32(r.Welcome.Rank+1)))
		at := rank.Piece{Memory: m, Offset: 8, Bytes: 4}
		op := rank.Operation{Kind: collective.Allreduce, Name: "a", Type: kernel.Float32, Op: kernel.Sum, Shape: []int{1}, In: at, Out: at}
		// Two at once, waited for in the other order.
		other := rank.Operation{Kind: collective.Barrier, Name: "b"}
		first, err := r.Submit(&op)
		if err != nil {
			return err
		}
		second, err := r.Submit(&other)
		if err != nil {
			return err
		}
		if _, err := r.Wait(second); err != nil {
			return err
		}
		if _, err := r.Wait(first); err != nil {
			return err
		}
		if got := floats(m.Bytes[8:12]); got[0] != 6 {
			t.Errorf("sum %v, want 6", got)
		}
		if _, err := r.Wait(first); err == nil {
			t.Error("a handle can be waited for twice")
		}
		for range 300 { // more than a rank may have at once
			more, err := r.Alloc(1 << 16)
			if err != nil {
				return err
			}
			if err := r.Free(more); err != nil {
				return err
			}
			if err := r.Free(more); err == nil {
				t.Error("memory can be freed twice")
			}
		}
		return nil
	})
}

// A name is in flight until its rank has waited, however fast the other one is.
func TestRankNames(t *testing.T) {
	h := start(t, 2)
	h.begin()
	ranks(t, h, func(r *rank.Session) error {
		m, err := r.Alloc(1 << 12)
		if err != nil {
			return err
		}
		at := rank.Piece{Memory: m, Bytes: 4}
		after := rank.Operation{Kind: collective.Barrier, Name: "after"}
		for _, op := range []rank.Operation{
			{Kind: collective.Barrier, Name: "barrier"},
			{Kind: collective.Broadcast, Name: "broadcast", Type: kernel.Float32, Shape: []int{1}, In: at, Out: at},
			{Kind: collective.Allreduce, Name: "allreduce", Type: kernel.Float32, Op: kernel.Sum, Shape: []int{1}, In: at, Out: at},
		} {
			for round := range 6 { // an allreduce the first time by the daemon, then in a slot
				handle, err := r.Submit(&op)
				if err != nil {
					return fmt.Errorf("%s, round %d: %w", op.Name, round, err)
				}
				if round%2 == 1 { // the other rank came to it before
					if _, err := r.Do(&after); err != nil {
						return err
					}
				}
				if _, err := r.Submit(&op); err == nil || !strings.Contains(err.Error(), "in flight") {
					t.Errorf("%s, round %d: submitted again: %v", op.Name, round, err)
				}
				if _, err := r.Do(&op); err == nil || !strings.Contains(err.Error(), "in flight") {
					t.Errorf("%s, round %d: done again: %v", op.Name, round, err)
				}
				if _, err := r.Wait(handle); err != nil {
					return err
				}
				if _, err := r.Do(&op); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func TestRankGathers(t *testing.T) {
	h := start(t, 2)
	h.begin()
	ranks(t, h, func(r *rank.Session) error {
		m, err := r.Alloc(4)
		if err != nil {
			return err
		}
		op := rank.Operation{Kind: collective.Allgather, Name: "g", Type: kernel.Float32, Shape: []int{1}, In: rank.Piece{Memory: m, Bytes: 4}}
		for round := range 100 { // the same memory comes again, without a descriptor
			le.PutUint32(m.Bytes, math.Float32bits(float32(100*round+r.Welcome.Rank)))
			result, err := r.Do(&op)
			if err != nil {
				return err
			}
			if got := floats(result.Bytes); len(got) != 2 || got[0] != float32(100*round) || got[1] != float32(100*round+1) {
				t.Errorf("round %d: %v", round, got)
			}
			if err := r.Release(result); err != nil {
				return err
			}
		}
		return nil
	})
	if h.pool.Resident() > 64<<10 {
		t.Errorf("%d bytes of results after 100 small ones, each released", h.pool.Resident())
	}
}

func TestRankIsRefused(t *testing.T) {
	h := start(t, 1)
	h.begin()
	if r, err := rank.Join(context.Background(), h.name, 0, token(7)); err == nil {
		r.Close()
		t.Error("a wrong token is accepted")
	}
	if _, err := rank.Join(context.Background(), h.name+"-not", 0, token(0)); err == nil {
		t.Error("joined a daemon that does not exist")
	}
	ranks(t, h, func(r *rank.Session) error {
		var e *collective.Error
		if _, err := r.Alloc(1 << 40); !errors.As(err, &e) || e.Code != collective.CodeInvalid {
			t.Errorf("alloc of a terabyte: %v", err)
		}
		m, err := r.Alloc(8)
		if err != nil {
			return err
		}
		at := rank.Piece{Memory: m, Offset: 1, Bytes: 4}
		op := rank.Operation{Kind: collective.Allreduce, Name: "a", Type: kernel.Float32, Op: kernel.Sum, Shape: []int{1}, In: at, Out: at}
		if _, err := r.Do(&op); !errors.As(err, &e) || !strings.Contains(e.Text, "aligned") {
			t.Errorf("misaligned tensor: %v", err)
		}
		op.In.Offset, op.Out.Offset = 4, 4
		if _, err := r.Do(&op); err != nil { // the session goes on
			t.Error(err)
		}
		op.Shape = make([]int, 300)
		if _, err := r.Submit(&op); err == nil {
			t.Error("300 dimensions are accepted")
		}
		return nil
	})
}

// TestRankIsReleased wants a blocked wait to end with the context, with the world and with the daemon.
func TestRankIsReleased(t *testing.T) {
	for name, end := range map[string]func(h *host, cancel func()){
		"context": func(_ *host, cancel func()) { cancel() },
		"world": func(h *host, _ func()) {
			h.server.GiveUp(&collective.Error{Code: collective.CodeAborted, Text: "host b died"}, nil)
		},
		"daemon": func(h *host, _ func()) { h.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, 2)
			h.begin()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			r, err := rank.Join(ctx, h.name, 0, token(0))
			must.Do(t, err)
			ended := make(chan error, 1)
			go func() {
				_, err := r.Do(&rank.Operation{Kind: collective.Barrier, Name: "b"})
				r.Close() // the connection may be gone
				ended <- err
			}()
			must.Soon(t, "the rank waits", func() bool {
				h.engine.mu.Lock()
				defer h.engine.mu.Unlock()
				return len(h.engine.waiting) == 1
			})
			end(h, cancel)
			if err := <-ended; err == nil || name == "world" && !strings.Contains(err.Error(), "host b died") {
				t.Errorf("the barrier of one rank of two ended with %v", err)
			}
		})
	}
}
