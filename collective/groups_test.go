package collective_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/contrib/must"
)

// everywhere submits the same request on every rank and returns what waits for all of them.
func (c *cluster) everywhere(r collective.Request) []*promise {
	c.t.Helper()
	var promises []*promise
	for rank := range c.layout.size() {
		promises = append(promises, c.submit(rank, r))
	}
	return promises
}

// addGroup makes a group and returns its number, which all ranks must agree about.
func (c *cluster) addGroup(ranks []int) uint32 {
	c.t.Helper()
	var ids []int
	for _, p := range c.everywhere(collective.Request{Kind: collective.AddGroup, Shape: ranks}) {
		r := p.good()
		ids = append(ids, r.Rows...)
	}
	if len(ids) != c.layout.size() || slices.Min(ids) != slices.Max(ids) {
		c.t.Fatalf("ranks have numbers %v for group %v", ids, ranks)
	}
	return uint32(ids[0])
}

func (c *cluster) removeGroup(id uint32) {
	c.t.Helper()
	ended(c.everywhere(collective.Request{Kind: collective.RemoveGroup, Root: int(id)})...)
}

// All kinds of operations among some of the ranks, in worlds of all kinds.
func TestEveryKindInGroups(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) { everyKindInGroups(t, w.layout, w.cfg, false) })
		t.Run(w.name+"/declared", func(t *testing.T) { everyKindInGroups(t, w.layout, w.cfg, true) })
	}
}

func everyKindInGroups(t *testing.T, layout layout, cfg collective.Config, declared bool) {
	c := newCluster(t, layout, 15, cfg)
	size := layout.size()
	for first := range size {
		var members []int
		for r := first; r < size; r += 2 {
			members = append(members, r)
		}
		if len(members) == size {
			continue
		}
		var id uint32
		if declared {
			id = 1<<30 + uint32(first)
			for _, rank := range members {
				c.declare(rank, id, members)
			}
		} else {
			id = c.addGroup(members)
		}
		n := len(members)
		var ends []*promise
		outs := map[int][]byte{}
		for _, rank := range members {
			data := slices.Repeat([]byte{byte(rank + 1)}, 3*n)
			out := make([]byte, 3*n)
			outs[rank] = out
			for _, r := range []collective.Request{
				{Kind: collective.Allreduce, Op: kernel.Sum, Out: out},
				{Kind: collective.Allgather},
				{Kind: collective.Alltoall},
				{Kind: collective.ReduceScatter, Op: kernel.Max},
				{Kind: collective.Broadcast, Root: members[n-1], Out: slices.Clone(data)},
				{Kind: collective.Barrier},
			} {
				r.Name, r.Group, r.Type, r.Shape, r.In = r.Kind.String(), id, kernel.Uint8, []int{3 * n}, data
				ends = append(ends, c.submit(rank, r))
			}
		}
		total := 0
		for _, rank := range members {
			total += rank + 1
		}
		for i, p := range ends {
			r := p.good()
			rank := members[i/6]
			switch i % 6 {
			case 0:
				if !slices.Equal(outs[rank], slices.Repeat([]byte{byte(total)}, 3*n)) {
					t.Errorf("group %v: sum %v", members, outs[rank])
				}
			case 1, 2:
				times := 3
				if i%6 == 1 {
					times = 3 * n
				}
				var want []byte
				for _, m := range members {
					want = append(want, slices.Repeat([]byte{byte(m + 1)}, times)...)
				}
				if got := r.Buffer.Bytes()[r.Lo:r.Hi]; !slices.Equal(got, want) || len(r.Rows) != n {
					t.Errorf("group %v: %s %v, rows %v", members, p.what, got, r.Rows)
				}
			case 3:
				if got := r.Buffer.Bytes()[r.Lo:r.Hi]; !slices.Equal(got, slices.Repeat([]byte{byte(members[n-1] + 1)}, 3)) {
					t.Errorf("group %v: maximum %v", members, got)
				}
			}
		}
		if first%2 == 1 && !declared {
			c.removeGroup(id)
		}
	}
}

func TestAddGroupRefused(t *testing.T) {
	c := newCluster(t, layout{{0, 2}, {1}}, 16, collective.Config{})
	id := c.addGroup([]int{2, 0})
	for name, r := range map[string]collective.Request{
		"nobody":         {Kind: collective.AddGroup},
		"twice":          {Kind: collective.AddGroup, Shape: []int{1, 1}},
		"too high":       {Kind: collective.AddGroup, Shape: []int{3}},
		"negative":       {Kind: collective.AddGroup, Shape: []int{-1, 1}},
		"the world":      {Kind: collective.AddGroup, Shape: []int{0, 1, 2}},
		"known":          {Kind: collective.AddGroup, Shape: []int{0, 2}},
		"in a group":     {Kind: collective.AddGroup, Shape: []int{0}, Group: id},
		"remove world":   {Kind: collective.RemoveGroup},
		"remove unknown": {Kind: collective.RemoveGroup, Root: 2},
		"remove less":    {Kind: collective.RemoveGroup, Root: -1},
		"not a member":   {Kind: collective.Barrier, Name: "b", Group: 7},
	} {
		if _, err := c.try(0, r); err == nil || code(t, err) != collective.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAddGroupMismatch(t *testing.T) {
	c := newCluster(t, layout{{0, 2}, {1}}, 16, collective.Config{})
	c.addGroup([]int{1, 2})
	for i, test := range []struct {
		parts []collective.Request
		text  string
	}{
		{[]collective.Request{{Kind: collective.AddGroup, Shape: []int{0, 1}}, {Kind: collective.AddGroup, Shape: []int{1}}, {Kind: collective.AddGroup, Shape: []int{1, 0}}},
			`add process set "process sets": ranks 0,2 on host1 submitted ranks 0,1, rank 1 on host2 submitted rank 1`},
		{[]collective.Request{{Kind: collective.AddGroup, Shape: []int{1}}, {Kind: collective.RemoveGroup, Root: 1}, {Kind: collective.AddGroup, Shape: []int{1}}},
			`"process sets": ranks 0,2 on host1 submitted add process set rank 1, rank 1 on host2 submitted remove process set number 1`},
	} {
		var promises []*promise
		for rank, r := range test.parts {
			promises = append(promises, c.submit(rank, r))
		}
		for _, p := range promises {
			if r := p.wait(); r.Err == nil || code(t, r.Err) != collective.CodeMismatch || r.Err.Error() != test.text {
				t.Errorf("%v, want %s", r.Err, test.text)
			}
		}
		// The next group has the same number everywhere.
		if id := c.addGroup([]int{0, 2}); id != uint32(2+i) {
			t.Errorf("the next group has number %d, want %d", id, 2+i)
		}
		c.removeGroup(uint32(2 + i))
	}
}

// One host has a group and uses it before another one has heard that all hosts agree.
func TestGroupAheadOfAHost(t *testing.T) {
	c := newCluster(t, even(3, 1), 17, collective.Config{})
	c.mesh.setHold(func(from, to int, h link.Header) bool { return from == 1 && to == 2 })
	adds := c.everywhere(collective.Request{Kind: collective.AddGroup, Shape: []int{0, 2}})
	ended(adds[:2]...)
	out := []byte{5}
	early := c.submit(0, sumIn(1, "x", out))
	// What the host sends after that waits with it, in order.
	behind := c.submit(0, barrier)
	must.Soon(t, "the third host has what the first one says", func() bool {
		c.mesh.mu.Lock()
		defer c.mesh.mu.Unlock()
		e := c.mesh.edges[[2]int{0, 2}]
		return len(e.queue) == 0 && e.busy == 0 && len(e.acks) == 0
	})
	if adds[2].done() || early.done() {
		t.Fatal("the third host has the group already")
	}
	c.mesh.setHold(nil)
	ended(adds[2])
	ended(early, c.submit(2, sumIn(1, "x", []byte{2})), behind, c.submit(1, barrier), c.submit(2, barrier))
	if out[0] != 7 {
		t.Errorf("the sum is %d, want 7", out[0])
	}
}

// Removing a group ends what cannot start any more, and nothing else.
func TestRemoveGroup(t *testing.T) {
	c := newCluster(t, layout{{0, 3}, {1}, {2}}, 18, collective.Config{Segment: 64, Direct: -1})
	id := c.addGroup([]int{0, 1, 3})
	var running []*promise
	for _, rank := range []int{0, 1, 3} {
		b := make([]byte, 5000)
		running = append(running, c.submit(rank, sumIn(id, "goes on", b)))
	}
	stuck := []*promise{c.submit(0, collective.Request{Kind: collective.Barrier, Name: "stuck", Group: id}),
		c.submit(1, collective.Request{Kind: collective.Barrier, Name: "stuck", Group: id})}
	c.removeGroup(id)
	ended(running...)
	for _, p := range stuck {
		if r := p.wait(); r.Err == nil || !strings.Contains(r.Err.Error(), fmt.Sprintf("process set %d was removed", id)) {
			t.Errorf("%s: %v", p.what, r.Err)
		}
	}
	if _, err := c.try(0, collective.Request{Kind: collective.Barrier, Name: "b", Group: id}); err == nil {
		t.Error("a group that was removed is used")
	}
	if again := c.addGroup([]int{0, 1, 3}); again != id+1 {
		t.Errorf("the next group has number %d, want %d", again, id+1)
	}
	for _, e := range c.engines {
		must.Soon(t, "no operation is open", func() bool { return len(e.Pending(epochStart)) == 0 })
	}
}

// Who has submitted that a group shall be removed can submit nothing more in it, unless the others want to remove
// another one: hosts that have removed it would have to hear of that.
func TestSubmitAfterRemoveGroup(t *testing.T) {
	for _, l := range []layout{even(1, 3), {{0, 2}, {1}}} {
		c := newCluster(t, l, 20, collective.Config{})
		id, other := c.addGroup([]int{0, 1}), c.addGroup([]int{1, 2})
		barrier := barrier
		barrier.Group = id
		remove := func(id uint32) collective.Request {
			return collective.Request{Kind: collective.RemoveGroup, Root: int(id)}
		}
		wrong := c.submit(0, remove(id))
		if _, err := c.try(0, barrier); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("rank 0 has removed process set %d", id)) {
			t.Errorf("%v: an operation after the removal: %v", l, err)
		}
		for _, p := range []*promise{wrong, c.submit(1, remove(other)), c.submit(2, remove(id))} {
			if r := p.wait(); code(t, r.Err) != collective.CodeMismatch {
				t.Errorf("%v: ranks remove different groups: %v", l, r.Err)
			}
		}
		ended(c.submit(0, barrier), c.submit(1, barrier)) // the group is there still
		late := c.submit(1, barrier)
		c.removeGroup(id)
		if r := late.wait(); r.Err == nil {
			t.Errorf("%v: an operation ended well of which one rank took no part", l)
		}
	}
}

// A group with a rank that has left, after its host agreed to the group, refuses operations.
func TestGroupOfLeavers(t *testing.T) {
	c := newCluster(t, even(2, 1), 19, collective.Config{})
	adds := c.everywhere(collective.Request{Kind: collective.AddGroup, Shape: []int{1}})
	ended(adds...)
	c.engines[1].Leave(1, 1)
	if p, err := c.try(0, collective.Request{Kind: collective.AddGroup, Shape: []int{0}}); err == nil && p.wait().Err == nil {
		t.Error("a group was made without a rank that has left")
	}
}
