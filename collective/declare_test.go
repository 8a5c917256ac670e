package collective_test

import (
	"strings"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/contrib/must"
)

// declare has a rank declare a group.
func (c *cluster) declare(rank int, id uint32, ranks []int) {
	c.t.Helper()
	r := c.submit(rank, collective.Request{Kind: collective.AddGroup, Group: id, Shape: ranks}).wait()
	if r.Err != nil || len(r.Rows) != 1 || r.Rows[0] != int(id) {
		c.t.Fatalf("rank %d declares group %d: rows %v, %v", rank, id, r.Rows, r.Err)
	}
}

func sumIn(group uint32, name string, b []byte) collective.Request {
	return collective.Request{Kind: collective.Allreduce, Op: kernel.Sum, Name: name, Group: group, Type: kernel.Uint8, Shape: []int{len(b)}, In: b, Out: b}
}

// gather is an allgather of this shape.
func gather(shape ...int) collective.Request {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return collective.Request{Kind: collective.Allgather, Name: "g", Type: kernel.Uint8, Shape: shape, In: make([]byte, n)}
}

// A rank uses its group before other members have declared it, whatever else it submits in between, and no one else is
// asked.
func TestDeclaredGroupAheadOfItsMembers(t *testing.T) {
	const rows, columns = 1 << 30, 1<<30 + 1
	c := newCluster(t, layout{{0, 1}, {2, 3}, {4, 5}}, 31, collective.Config{})
	row, column := []int{0, 3, 4}, []int{1, 0}
	a, b := []byte{1}, []byte{10}
	c.declare(0, rows, row)
	first := c.submit(0, sumIn(rows, "x", a))
	c.declare(0, columns, column)
	second := c.submit(0, sumIn(columns, "x", b))
	ended(c.everywhere(collective.Request{Kind: collective.Barrier, Name: "all"})...)
	if first.done() || second.done() {
		t.Fatal("an operation ended without all members")
	}
	c.declare(1, columns, column)
	c.declare(4, rows, row)
	c.declare(3, rows, []int{4, 3, 0}) // the order does not matter
	rest := []*promise{first, second, c.submit(4, sumIn(rows, "x", []byte{4})), c.submit(3, sumIn(rows, "x", []byte{2})), c.submit(1, sumIn(columns, "x", []byte{5}))}
	ended(rest...)
	if a[0] != 7 || b[0] != 15 {
		t.Errorf("sums are %d and %d, want 7 and 15", a[0], b[0])
	}
	// The same ranks can be a process set of the world too, with a number of its own.
	if id := c.addGroup([]int{0, 3, 4}); id != 1 {
		t.Errorf("the first process set has number %d", id)
	}
}

func TestDeclareRefused(t *testing.T) {
	c := newCluster(t, layout{{0, 2}, {1}}, 16, collective.Config{})
	const id = 1<<30 + 5
	c.declare(0, id, []int{0, 1})
	for name, r := range map[string]collective.Request{
		"nobody":            {Group: id + 1},
		"twice":             {Group: id + 1, Shape: []int{0, 0}},
		"too high":          {Group: id + 1, Shape: []int{0, 3}},
		"not in it":         {Group: id + 1, Shape: []int{1, 2}},
		"other ranks":       {Group: id, Shape: []int{0, 2}},
		"a number too low":  {Group: 7, Shape: []int{0, 1}},
		"a number of pairs": {Group: 1<<31 + 1, Shape: []int{0, 1}},
		"remove":            {Kind: collective.RemoveGroup, Root: id},
	} {
		if r.Kind == 0 {
			r.Kind = collective.AddGroup
		}
		if _, err := c.try(0, r); err == nil || code(t, err) != collective.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := range uint32(1 << 12) {
		_, err := c.try(2, collective.Request{Kind: collective.AddGroup, Group: id + 10 + n, Shape: []int{2}})
		if full := n == 1<<12-1; full != (err != nil) || full && !strings.Contains(err.Error(), "limit") {
			t.Fatalf("group %d: %v", n, err)
		}
	}
}

// The next world knows nothing of the groups of the last.
func TestDeclaredGroupEndsWithTheWorld(t *testing.T) {
	c := newCluster(t, layout{{0, 1}}, 16, collective.Config{})
	c.declare(0, 1<<30, []int{0})
	c.engines[0].Abort(&collective.Error{Code: collective.CodeAborted, Text: "over"})
	if _, err := c.try(0, collective.Request{Kind: collective.AddGroup, Group: 1 << 30, Shape: []int{0}}); err == nil || err.Error() != "over" {
		t.Errorf("declared in a world that is over: %v", err)
	}
	must.Do(t, c.engines[0].SetWorld(collective.EngineWorld{Epoch: 9, Hosts: []collective.HostRanks{{Name: "h", Ranks: []int{0, 1}}}, Size: 2}))
	c.declare(0, 1<<30, []int{0, 1})
}
