package session_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/contrib/must"
	"gorun/worker/rank"
)

// ranks joins size ranks and runs f on each, in a goroutine of its own.
func ranks(t *testing.T, h *host, f func(r member)) {
	t.Helper()
	var wg sync.WaitGroup
	for self := range h.engine.size {
		wg.Go(func() {
			s, err := rank.Join(context.Background(), h.name, self, token(self))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Errorf("rank %d: %v", self, err)
				}
			}()
			f(member{s, t})
		})
	}
	wg.Wait()
}

// member is a rank of a test. It ends, and leaves its world, when one of its own methods fails.
type member struct {
	*rank.Session
	t *testing.T
}

func (m member) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Errorf("rank %d: %v", m.Welcome.Rank, err)
		runtime.Goexit()
	}
}

func (m member) do(ops ...*rank.Operation) {
	m.t.Helper()
	for _, op := range ops {
		_, err := m.Do(op)
		m.must(err)
	}
}

func (m member) submit(op *rank.Operation) (handle uint32) {
	m.t.Helper()
	handle, err := m.Submit(op)
	m.must(err)
	return handle
}

func (m member) wait(handle uint32) {
	m.t.Helper()
	_, err := m.Wait(handle)
	m.must(err)
}

func (m member) alloc(size int) *rank.Memory {
	m.t.Helper()
	memory, err := m.Alloc(size)
	m.must(err)
	return memory
}

func (m member) vector(name string, n int) *vector {
	m.t.Helper()
	v, err := newVector(m.Session, name, n)
	m.must(err)
	return v
}

func floats(b []byte) (v []float32) {
	for ; len(b) > 0; b = b[4:] {
		v = append(v, math.Float32frombits(le.Uint32(b)))
	}
	return v
}

func TestRank(t *testing.T) {
	h := start(t, 3).begin()
	ranks(t, h, func(r member) {
		if r.Welcome.Size != 3 || r.Welcome.Hosts != 1 || r.Welcome.LocalSize != 3 {
			t.Errorf("welcome %+v", r.Welcome)
		}
		m := r.alloc(1 << 20)
		le.PutUint32(m.Bytes[8:], math.Float32bits(float32(r.Welcome.Rank+1)))
		at := rank.Piece{Memory: m, Offset: 8, Bytes: 4}
		op := rank.Operation{Kind: collective.Allreduce, Name: "a", Type: kernel.Float32, Op: kernel.Sum, Shape: []int{1}, In: at, Out: at}
		// Two at once, waited for in the other order.
		other := rank.Operation{Kind: collective.Barrier, Name: "b"}
		first := r.submit(&op)
		r.wait(r.submit(&other))
		r.wait(first)
		if got := floats(m.Bytes[8:12]); got[0] != 6 {
			t.Errorf("sum %v, want 6", got)
		}
		if _, err := r.Wait(first); err == nil {
			t.Error("a handle can be waited for twice")
		}
		for range 300 { // more than a rank may have at once
			more := r.alloc(1 << 16)
			r.must(r.Free(more))
			if err := r.Free(more); err == nil {
				t.Error("memory can be freed twice")
			}
		}
	})
}

// A name is in flight until its rank has waited, however fast the other one is.
func TestRankNames(t *testing.T) {
	h := start(t, 2).begin()
	ranks(t, h, func(r member) {
		m := r.alloc(1 << 12)
		at := rank.Piece{Memory: m, Bytes: 4}
		after := rank.Operation{Kind: collective.Barrier, Name: "after"}
		for _, op := range []rank.Operation{
			{Kind: collective.Barrier, Name: "barrier"},
			{Kind: collective.Broadcast, Name: "broadcast", Type: kernel.Float32, Shape: []int{1}, In: at, Out: at},
			{Kind: collective.Allreduce, Name: "allreduce", Type: kernel.Float32, Op: kernel.Sum, Shape: []int{1}, In: at, Out: at},
		} {
			for round := range 6 { // an allreduce the first time by the daemon, then in a slot
				handle := r.submit(&op)
				if round%2 == 1 { // the other rank came to it before
					r.do(&after)
				}
				if _, err := r.Submit(&op); err == nil || !strings.Contains(err.Error(), "in flight") {
					t.Errorf("%s, round %d: submitted again: %v", op.Name, round, err)
				}
				if _, err := r.Do(&op); err == nil || !strings.Contains(err.Error(), "in flight") {
					t.Errorf("%s, round %d: done again: %v", op.Name, round, err)
				}
				r.wait(handle)
				r.do(&op)
			}
		}
	})
}

func TestRankGathers(t *testing.T) {
	h := start(t, 2).begin()
	ranks(t, h, func(r member) {
		m := r.alloc(4)
		op := rank.Operation{Kind: collective.Allgather, Name: "g", Type: kernel.Float32, Shape: []int{1}, In: rank.Piece{Memory: m, Bytes: 4}}
		for round := range 100 { // the same memory comes again, without a descriptor
			le.PutUint32(m.Bytes, math.Float32bits(float32(100*round+r.Welcome.Rank)))
			result, err := r.Do(&op)
			r.must(err)
			if got := floats(result.Bytes); len(got) != 2 || got[0] != float32(100*round) || got[1] != float32(100*round+1) {
				t.Errorf("round %d: %v", round, got)
			}
			r.must(r.Release(result))
		}
	})
	if h.pool.Resident() > 64<<10 {
		t.Errorf("%d bytes of results after 100 small ones, each released", h.pool.Resident())
	}
}

func TestRankIsRefused(t *testing.T) {
	h := start(t, 1).begin()
	if r, err := rank.Join(context.Background(), h.name, 0, token(7)); err == nil {
		r.Close()
		t.Error("a wrong token is accepted")
	}
	if _, err := rank.Join(context.Background(), h.name+"-not", 0, token(0)); err == nil {
		t.Error("joined a daemon that does not exist")
	}
	ranks(t, h, func(r member) {
		var e *collective.Error
		if _, err := r.Alloc(1 << 40); !errors.As(err, &e) || e.Code != collective.CodeInvalid {
			t.Errorf("alloc of a terabyte: %v", err)
		}
		m := r.alloc(8)
		at := rank.Piece{Memory: m, Offset: 1, Bytes: 4}
		op := rank.Operation{Kind: collective.Allreduce, Name: "a", Type: kernel.Float32, Op: kernel.Sum, Shape: []int{1}, In: at, Out: at}
		if _, err := r.Do(&op); !errors.As(err, &e) || !strings.Contains(e.Text, "aligned") {
			t.Errorf("misaligned tensor: %v", err)
		}
		op.In.Offset, op.Out.Offset = 4, 4
		r.do(&op) // the session goes on
		op.Shape = make([]int, 300)
		if _, err := r.Submit(&op); err == nil {
			t.Error("300 dimensions are accepted")
		}
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
			h := start(t, 2).begin()
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
