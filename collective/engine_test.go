package collective_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/collective/schedule"
	"gorun/contrib/must"
)

var epochStart = time.Unix(1000, 0)

func code(t *testing.T, err error) collective.Code {
	t.Helper()
	var e *collective.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no *Error", err)
	}
	return e.Code
}

// Every rank repeats the same names as fast as it can; nothing but the operations keeps the hosts
// together, so that fast ranks meet hosts that have not finished the last use.
func TestNamesAreReused(t *testing.T) {
	each(t, worlds, func(t *testing.T, c *cluster, size int) {
		const rounds, n = 300, 40
		var wg sync.WaitGroup
		for rank := range size {
			wg.Go(func() {
				in := make([]byte, n)
				for round := range rounds {
					for i := range in {
						in[i] = byte(rank + round + i)
					}
					kind := collective.Allreduce
					if round%7 == 0 {
						kind = collective.Broadcast
					}
					p, err := c.try(rank, collective.Request{Kind: kind, Name: "again", Root: round % size,
						Type: kernel.Uint8, Op: kernel.Sum, Shape: []int{n}, In: in, Out: in})
					if err != nil {
						t.Errorf("round %d: %v", round, err)
						return
					}
					if r := p.wait(); r.Err != nil {
						t.Errorf("round %d: %v", round, r.Err)
						return
					}
					for i := range in {
						want := round%size + round + i
						if kind == collective.Allreduce {
							want = size*(round+i) + size*(size-1)/2
						}
						if in[i] != byte(want) {
							t.Errorf("round %d, rank %d: element %d is %d, want %d", round, rank, i, in[i], byte(want))
							return
						}
					}
				}
			})
		}
		wg.Wait()
		if c.mesh.refused > 0 {
			t.Errorf("%d segments were refused", c.mesh.refused)
		}
	})
}

// A host may be one use ahead of another that has not heard the last ready message.
func TestOneUseAhead(t *testing.T) {
	c := newCluster(t, even(3, 1), 7, collective.Config{})
	// Host 2 does not hear host 3.
	c.mesh.setHold(func(from, to int, h link.Header) bool { return from == 2 && to == 1 })
	first := []*promise{c.submit(0, barrier), c.submit(1, barrier), c.submit(2, barrier)}
	first[0].wait()
	first[2].wait()
	second := []*promise{c.submit(0, barrier), nil, c.submit(2, barrier)}
	if first[1].done() {
		t.Fatal("rank 1 passed without having heard host 3")
	}
	c.mesh.setHold(nil)
	first[1].wait()
	second[1] = c.submit(1, barrier)
	ended(second...)
}

// idle reports whether nothing is under way.
func (m *mesh) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.edges {
		if len(e.queue) > 0 || e.busy > 0 {
			return false
		}
	}
	return true
}

func TestGroups(t *testing.T) {
	// Overlapping groups, one of them without a rank on the first host, use one name at the same time.
	c := newCluster(t, layout{{0, 3}, {1, 4}, {2, 5}}, 12, collective.Config{Segment: 128, Direct: -1})
	groups := map[uint32][]int{1: {0, 1, 2}, 2: {1, 2, 4}, 3: {3, 5}, 4: {4}}
	for id := uint32(1); int(id) <= len(groups); id++ {
		if got := c.addGroup(groups[id]); got != id {
			t.Fatalf("group %d has number %d", id, got)
		}
	}
	const n = 500
	type end struct {
		out  []byte
		want []byte
		p    *promise
	}
	var ends []end
	for id, ranks := range groups {
		var inputs [][]complex128
		for _, r := range ranks {
			inputs = append(inputs, sample(kernel.Float64, kernel.Sum, r, n))
		}
		want := fold(kernel.Float64, kernel.Average, 1, 1, inputs)
		for i, r := range ranks {
			in := encode(kernel.Float64, inputs[i])
			p := c.submit(r, collective.Request{Kind: collective.Allreduce, Name: "x", Group: id, Type: kernel.Float64,
				Op: kernel.Average, Shape: []int{n}, In: in, Out: in})
			ends = append(ends, end{in, want, p})
		}
	}
	for _, e := range ends {
		e.p.good()
		if !bytes.Equal(e.out, e.want) {
			t.Errorf("%s: another result", e.p.what)
		}
	}
	if _, err := c.try(0, collective.Request{Kind: collective.Barrier, Name: "x", Group: 2}); err == nil {
		t.Error("rank 0 took part in a group it is not in")
	}
	// A rank that leaves ends the groups it is in, and no others.
	c.engines[0].Leave(1, 3)
	if r, err := c.try(5, collective.Request{Kind: collective.Barrier, Name: "b", Group: 3}); err == nil && r.wait().Err == nil {
		t.Error("a barrier of group 3 passed without rank 3")
	}
	var rest []*promise
	for _, r := range groups[1] {
		rest = append(rest, c.submit(r, collective.Request{Kind: collective.Barrier, Name: "b", Group: 1}))
	}
	ended(rest...)
}

func TestPending(t *testing.T) {
	c := newCluster(t, layout{{0, 1}, {2, 3}}, 13, collective.Config{})
	c.submit(0, barrier)
	c.submit(2, barrier)
	c.submit(3, barrier)
	want := []collective.Stall{{Kind: collective.Barrier, Name: "b", Since: epochStart,
		Missing: []collective.Absent{{Host: "host1", Ranks: []int{1}}}}}
	var got []collective.Stall
	now := epochStart
	must.Soon(t, "host 1 knows that only rank 1 is missing", func() bool {
		got = c.engines[0].Pending(now)
		now = now.Add(time.Second)
		return reflect.DeepEqual(got, want)
	})
	got = c.engines[1].Pending(epochStart)
	want[0].Missing = []collective.Absent{{Host: "host1", Ranks: []int{0, 1}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("host 2 waits for %+v, want %+v", got, want)
	}
	c.submit(1, barrier).wait()
	if got := c.engines[0].Pending(now); len(got) != 0 {
		t.Errorf("open at the end: %+v", got)
	}
}

// Segments that fit no open operation, or not as they are, are refused or dropped, and harm nothing.
func TestStraySegments(t *testing.T) {
	c := newCluster(t, even(2, 1), 15, collective.Config{Segment: 64, Algorithm: schedule.ByRing})
	e := c.engines[0]
	c.mesh.setHold(func(from, _ int, h link.Header) bool { return from == 1 && h.Kind == link.Data })
	finish := c.allreduce("x", kernel.Int8, kernel.Sum, 1000, 1, 1)
	var real link.Header
	must.Soon(t, "host 2's data is under way", func() bool {
		c.mesh.mu.Lock()
		defer c.mesh.mu.Unlock()
		for _, l := range c.mesh.edges[[2]int{1, 0}].queue {
			real = l.s.Header
		}
		return real.Kind == link.Data
	})
	must.Soon(t, "the operation runs", func() bool {
		other := real
		other.Gen++
		_, err := e.Place(1, other)
		return err != nil
	})
	if _, err := e.Place(1, real); err != nil {
		t.Fatalf("the segment itself is refused: %v", err)
	}
	for name, change := range map[string]func(h *link.Header){
		"operation": func(h *link.Header) { h.Op++ },
		"use":       func(h *link.Header) { h.Gen++ },
		"epoch":     func(h *link.Header) { h.Epoch++ },
		"step":      func(h *link.Header) { h.Step = 99 },
		"send step": func(h *link.Header) { h.Step = 0 },
		"offset":    func(h *link.Header) { h.Offset++ },
		"beyond":    func(h *link.Header) { h.Offset = 1 << 40 },
		"negative":  func(h *link.Header) { h.Offset = 1 << 63 },
		"length":    func(h *link.Header) { h.Length-- },
		"nothing":   func(h *link.Header) { h.Length = 0 },
		"kind":      func(h *link.Header) { h.Kind = 77 },
	} {
		h := real
		change(&h)
		if _, err := e.Place(1, h); err == nil {
			t.Errorf("another %s was placed", name)
		}
		e.Deliver(1, h, make([]byte, h.Length))
	}
	if _, err := e.Place(5, real); err == nil {
		t.Error("a segment of an unknown host was placed")
	}
	for _, p := range [][]byte{nil, {1}, {2}, {9, 9, 9, 9}, make([]byte, 100)} {
		e.Deliver(1, link.Header{Kind: link.Control, Epoch: 1, Offset: 1 << 50, Length: uint32(len(p))}, p)
	}
	c.mesh.setHold(nil)
	finish()
}

// Random operations of all kinds, in random order on random layouts.
func TestEverythingAtOnce(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 5))
			l := make(layout, 1+rng.IntN(5))
			for i, r := range rng.Perm(len(l) + rng.IntN(8)) {
				h := rng.IntN(len(l))
				if i < len(l) {
					h = i
				}
				l[h] = append(l[h], r)
			}
			c := newCluster(t, l, seed, collective.Config{Segment: 64 << rng.IntN(8), Direct: rng.Int64N(4000) - 1, Inline: rng.Int64N(4000) - 1})
			size := l.size()
			var parts [][]collective.Request // by operation and rank
			for i := range 40 {
				kind := collective.Kind(1 + rng.IntN(4))
				n, root := rng.IntN(3000), rng.IntN(size)
				var all []collective.Request
				for rank := range size {
					r := collective.Request{Kind: kind, Name: fmt.Sprint("op", i), Root: root, Type: kernel.Int32, Op: kernel.Sum}
					if kind == collective.Allgather {
						n = rng.IntN(2000)
					}
					if kind != collective.Barrier {
						r.Shape = []int{n}
						r.In = encode(kernel.Int32, sample(kernel.Int32, kernel.Sum, rank+i, n))
						r.Out = r.In
					}
					if kind == collective.Allgather {
						r.Out = nil
					}
					all = append(all, r)
				}
				parts = append(parts, all)
			}
			want := make([][]byte, len(parts))
			for i, all := range parts {
				var inputs [][]complex128
				for rank := range all {
					inputs = append(inputs, sample(kernel.Int32, kernel.Sum, rank+i, len(all[rank].In)/4))
				}
				switch all[0].Kind {
				case collective.Allreduce:
					want[i] = fold(kernel.Int32, kernel.Sum, 1, 1, inputs)
				case collective.Broadcast:
					want[i] = slices.Clone(all[all[0].Root].In)
				case collective.Allgather:
					for _, r := range all {
						want[i] = append(want[i], r.In...)
					}
				}
			}
			promises := make([][]*promise, len(parts))
			for i := range promises {
				promises[i] = make([]*promise, size)
			}
			for _, k := range rng.Perm(len(parts) * size) {
				i, rank := k/size, k%size
				promises[i][rank] = c.submit(rank, parts[i][rank])
			}
			for i := range promises {
				for rank, p := range promises[i] {
					r := p.good()
					got := parts[i][rank].Out
					if r.Buffer != nil {
						got = r.Buffer.Bytes()
						r.Buffer.Release()
					}
					if !bytes.Equal(got, want[i]) {
						t.Fatalf("%s: another result", p.what)
					}
				}
			}
		})
	}
}
