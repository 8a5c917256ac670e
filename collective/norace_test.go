//go:build !race

package collective_test

import (
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/schedule"
	"gorun/contrib/must"
	"gorun/worker/shm"
)

// use is an operation that ranks use again and again.
type use struct {
	name  string
	parts []collective.Request // by rank; of those without a client there is none
}

// submit submits all contributions; only their clients hear of them.
func (u *use) submit(g *gang, submit func(rank int, r collective.Request) error) error {
	parts := int32(0)
	for i := range u.parts {
		if u.parts[i].Client != nil {
			parts++
		}
	}
	g.left.Store(parts)
	for rank := range u.parts {
		if u.parts[rank].Client == nil {
			continue
		}
		if err := submit(rank, u.parts[rank]); err != nil {
			return err
		}
	}
	return nil
}

// usesOf returns operations of three ranks that ranks may repeat, on tensors of rows times 16 bytes. The group is of
// ranks 0 and 2.
func usesOf(rows int, group uint32, client collective.Client) []use {
	const size = 3
	all := func(name string, r collective.Request, ranks ...int) use {
		u := use{name, make([]collective.Request, size)}
		for _, rank := range ranks {
			p := r
			p.Name, p.Type, p.Pre, p.Post, p.Client = name, kernel.Float32, 1, 1, client
			if p.Kind != collective.Barrier {
				p.Shape, p.In = []int{rows, 4}, make([]byte, 16*rows)
				p.Out = p.In
			}
			if p.Kind == collective.Send && rank != 0 {
				p.Kind, p.Root, p.In = collective.Recv, 0, nil
			}
			u.parts[rank] = p
		}
		return u
	}
	var uses []use
	for kind := collective.Allreduce; kind <= collective.Scatter; kind++ {
		switch kind {
		case collective.AddGroup, collective.RemoveGroup, collective.Join:
			continue
		}
		r := collective.Request{Kind: kind, Op: kernel.Sum}
		uses = append(uses, all(kind.String(), r, 0, 1, 2))
		if r.Group = group; kind.String() != "alltoall" || rows%2 == 0 {
			uses = append(uses, all(kind.String()+" in a group", r, 0, 2))
		}
	}
	return append(uses,
		all("adasum", collective.Request{Kind: collective.Allreduce, Op: kernel.Adasum}, 0, 1, 2),
		all("coded reducescatter", collective.Request{Kind: collective.ReduceScatter, Op: kernel.Sum, Coding: kernel.CodingInt8}, 0, 1, 2),
		all("alltoall with splits", collective.Request{Kind: collective.Alltoall, Splits: []int{rows / 3, rows / 3, rows / 3}}, 0, 1, 2),
		all("send", collective.Request{Kind: collective.Send, Root: 1}, 0, 1))
}

// TestOperationsAllocateNothing: nor does any other operation, on one host or between hosts, in the world, a group of
// it, or after a rank joined.
func TestOperationsAllocateNothing(t *testing.T) {
	results := shm.NewPool(256 << 20)
	t.Cleanup(results.Close)
	cfg := collective.Config{Alloc: results, Record: true}
	for _, hosts := range []int{1, 3} {
		w := newRealWorld(t, hosts, 3/hosts, cfg)
		submit := func(rank int, r collective.Request) error { return w.engines[rank/w.ranks].Submit(rank, r) }
		g := &gang{done: make(chan error, 1)}
		run := func(u *use) {
			t.Helper()
			if err := u.submit(g, submit); err != nil {
				t.Fatalf("%s on %d hosts: %v", u.name, hosts, err)
			}
			select {
			case err := <-g.done:
				if err != nil {
					t.Fatalf("%s on %d hosts: %v", u.name, hosts, err)
				}
			case <-w.late.C:
				t.Fatalf("%s on %d hosts did not end: %+v", u.name, hosts, w.engines[0].Pending(epochStart))
			}
		}
		measure := func(u *use) {
			t.Helper()
			round := func() { run(u) }
			for range 20 {
				round()
			}
			got := testing.AllocsPerRun(50, round)
			for attempt := 1; attempt < 20 && got >= 1; attempt++ {
				got = min(got, testing.AllocsPerRun(50, round))
			}
			if got >= 1 {
				t.Errorf("%s of %d bytes on %d hosts: %g allocations per operation", u.name, len(u.parts[0].In), hosts, got)
			}
		}
		add := use{"add process set", make([]collective.Request, 3)}
		for rank := range add.parts {
			add.parts[rank] = collective.Request{Kind: collective.AddGroup, Shape: []int{0, 2}, Client: g}
		}
		run(&add)
		for _, rows := range []int{3, 12 << 10} {
			for _, u := range usesOf(rows, 1, g) {
				measure(&u)
			}
		}
		must.Do(t, submit(2, collective.Request{Kind: collective.Join, Client: joined{}}))
		for _, rows := range []int{3, 12 << 10} {
			u := usesOf(rows, 1, g)[0]
			u.name, u.parts[2] = u.name+" without a rank that joined", collective.Request{}
			measure(&u)
		}
	}
}

// joined is a rank that has no more data.
type joined struct{}

func (joined) Complete(uint64, collective.Result) {}

// TestLocalAllocatesNothing: nothing is allocated per operation on one host. Under the race detector pools
// forget what they hold, so it is built without.
func TestLocalAllocatesNothing(t *testing.T) {
	for _, n := range []int{4, 1 << 20} {
		l := newLocal(t, 2, n)
		if got := testing.AllocsPerRun(200, l.round); got >= 1 {
			t.Errorf("%d bytes: %g allocations per operation", n, got)
		}
	}
}

// TestLinksAllocateNothing: nor between hosts, whatever the algorithm. A pool may forget something now and
// then, and the links have timers of their own, so that it is not exactly nothing, the less so the busier the
// machine is: the best of some attempts counts.
func TestLinksAllocateNothing(t *testing.T) {
	for _, by := range append(schedule.Algorithms(), schedule.Auto) {
		w := newRealWorld(t, 3, 1, collective.Config{Record: true, Algorithm: by, Coding: kernel.CodingInt8})
		g := &gang{done: make(chan error, 1)}
		for i, n := range []int{4, 64 << 10, 64 << 10} {
			if g.typ = kernel.Int32; i > 1 {
				g.typ = kernel.Float32 // which is coded
			}
			buffers := [][]byte{make([]byte, n), make([]byte, n), make([]byte, n)}
			round := func() {
				must.Do(t, w.round(g, buffers))
			}
			for range 20 {
				round()
			}
			got := testing.AllocsPerRun(100, round)
			for attempt := 1; attempt < 10 && got >= 4; attempt++ { // the test makes three shapes
				got = min(got, testing.AllocsPerRun(100, round))
			}
			if got >= 4 {
				t.Errorf("%s of %d bytes of %s: %g allocations per operation", by, n, g.typ, got)
			}
		}
	}
}
