package collective_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/contrib/must"
)

// rootedWorlds are 1 to 9 hosts, and hosts with several ranks.
var rootedWorlds = func() (all []testWorld) {
	layouts := []layout{even(1, 3), even(2, 2), {{4, 0}, {2}, {1, 5, 3}}}
	for hosts := 1; hosts <= 9; hosts++ {
		layouts = append(layouts, even(hosts, 1))
	}
	for _, l := range layouts {
		all = append(all, testWorld{fmt.Sprint(l), l, collective.Config{Segment: 256}})
	}
	return all
}()

// Every type and reduction, to every root, against the naive twin.
func TestReduce(t *testing.T) {
	each(t, rootedWorlds, func(t *testing.T, c *cluster, size int) {
		for typ := kernel.Uint8; typ <= kernel.Complex128; typ++ {
			for i, op := range reductions(typ) {
				root := (i + int(typ)) % size
				for _, shape := range [][]int{{}, {0}, {7, 3}, {1500}} {
					n := 1
					for _, d := range shape {
						n *= d
					}
					inputs := make([][]complex128, size)
					var promises []*promise
					for rank := range size {
						inputs[rank] = sample(typ, op, rank, n)
						promises = append(promises, c.submit(rank, collective.Request{Kind: collective.Reduce, Name: "r", Type: typ, Op: op,
							Root: root, Shape: shape, In: encode(typ, inputs[rank])}))
					}
					want := fold(typ, op, 1, 1, inputs)
					for rank, p := range promises {
						r := p.wait()
						switch {
						case r.Err != nil:
							t.Fatal(r.Err)
						case rank != root && (r.Lo != r.Hi || r.Shape != nil):
							t.Fatalf("%s: got bytes [%d,%d) of shape %v", p.what, r.Lo, r.Hi, r.Shape)
						case rank == root && (!slices.Equal(r.Shape, shape) || !bytes.Equal(r.Buffer.Bytes()[r.Lo:r.Hi], want)):
							t.Fatalf("%s of %s, %v of %v: another result", p.what, typ, op, shape)
						}
						r.Buffer.Release()
					}
				}
			}
		}
	})
}

func TestGather(t *testing.T) {
	each(t, rootedWorlds, func(t *testing.T, c *cluster, size int) {
		for root := range size {
			for _, scale := range []int{0, 1, 90} {
				var promises []*promise
				var want []byte
				var rows []int
				total := 0
				for rank := range size {
					n := scale * (rank + 1) % 97
					in := encode(kernel.Int16, sample(kernel.Int16, kernel.Sum, rank, n*3))
					want, rows, total = append(want, in...), append(rows, n), total+n
					promises = append(promises, c.submit(rank, collective.Request{Kind: collective.Gather, Name: "g",
						Type: kernel.Int16, Root: root, Shape: []int{n, 3}, In: in}))
				}
				for rank, p := range promises {
					r := p.wait()
					switch {
					case r.Err != nil:
						t.Fatal(r.Err)
					case rank != root && r.Lo != r.Hi:
						t.Fatalf("%s: got %d bytes", p.what, r.Hi-r.Lo)
					case rank == root && (!slices.Equal(r.Rows, rows) || !slices.Equal(r.Shape, []int{total, 3}) || !bytes.Equal(r.Buffer.Bytes()[r.Lo:r.Hi], want)):
						t.Fatalf("%s: rows %v of shape %v, or another result", p.what, r.Rows, r.Shape)
					}
					r.Buffer.Release()
				}
			}
		}
	})
}

// The root deals its rows out by splits, or evenly; what the others give is not looked at.
func TestScatter(t *testing.T) {
	each(t, rootedWorlds, func(t *testing.T, c *cluster, size int) {
		for root := range size {
			for _, given := range []bool{false, true} {
				rows := 40*size + 1
				in := encode(kernel.Float32, sample(kernel.Float32, kernel.Sum, root, rows*3))
				var splits []int
				for i := range size {
					if given {
						splits = append(splits, 40*(i%2)+i%3)
					}
				}
				var promises []*promise
				for rank := range size {
					r := collective.Request{Kind: collective.Scatter, Name: "s", Type: kernel.Float32, Root: root, Shape: []int{0, 3}}
					if rank == root {
						r.Shape, r.In, r.Splits = []int{rows, 3}, in, splits
					}
					promises = append(promises, c.submit(rank, r))
				}
				at := 0
				for rank, p := range promises {
					from, to := share(rows, rank, size)
					if given {
						from, to = at, at+splits[rank]
						at = to
					}
					r := p.good()
					if !slices.Equal(r.Shape, []int{to - from, 3}) || !bytes.Equal(r.Buffer.Bytes()[r.Lo:r.Hi], in[from*12:to*12]) {
						t.Fatalf("%s: shape %v for rows [%d,%d), or another result", p.what, r.Shape, from, to)
					}
					r.Buffer.Release()
				}
			}
		}
	})
}

// Every rank sends to every other one at the same time, in both directions.
func TestSend(t *testing.T) {
	each(t, rootedWorlds, func(t *testing.T, c *cluster, size int) {
		for _, n := range []int{0, 1, 3000} {
			var promises []*promise
			var checks []func()
			for from := range size {
				for to := range size {
					if from == to {
						continue
					}
					name := fmt.Sprint(from, " to ", to)
					in := encode(kernel.Float32, sample(kernel.Float32, kernel.Sum, from*size+to, n))
					out := make([]byte, len(in))
					send := collective.Request{Kind: collective.Send, Name: name, Root: to, Type: kernel.Float32, Shape: []int{n}, In: in}
					recv := collective.Request{Kind: collective.Recv, Name: name, Root: from, Type: kernel.Float32, Shape: []int{n}, Out: out}
					if (from+to)%2 == 0 {
						promises = append(promises, c.submit(from, send), c.submit(to, recv))
					} else {
						promises = append(promises, c.submit(to, recv), c.submit(from, send))
					}
					checks = append(checks, func() {
						if !bytes.Equal(in, out) {
							t.Fatalf("%s, %d elements: something else came", name, n)
						}
					})
				}
			}
			ended(promises...)
			for _, check := range checks {
				check()
			}
		}
	})
}

// A rank that would receive from any rank hears which ones send, wherever they are, until it receives.
func TestPeek(t *testing.T) {
	each(t, rootedWorlds, func(t *testing.T, c *cluster, size int) {
		if size == 1 {
			return
		}
		peek := func(name string) []int {
			return c.submit(0, collective.Request{Kind: collective.Peek, Name: name}).good().Rows
		}
		request := func(kind collective.Kind, from, to int) collective.Request {
			r := collective.Request{Kind: kind, Name: fmt.Sprintf("%d.%d.x", from, to), Type: kernel.Int8, Shape: []int{4}, Root: to}
			if kind == collective.Recv {
				r.Root, r.Out = from, make([]byte, 4)
			} else {
				r.In = make([]byte, 4)
			}
			return r
		}
		if got := peek(".0.x"); len(got) > 0 {
			t.Errorf("nobody sends, but %v are said to", got)
		}
		var all, want []int
		var promises []*promise
		for other := 1; other < size; other++ {
			// What a rank waits for from rank 0 is nothing that it sends.
			promises = append(promises, c.submit(other, request(collective.Recv, 0, other)), c.submit(other, request(collective.Send, other, 0)))
			all = append(all, other)
		}
		for want = all; len(want) > 0; want = want[1:] {
			must.Soon(t, fmt.Sprintf("peek finds %v", want), func() bool { return slices.Equal(peek(".0.x"), want) })
			if got := peek(".0.y"); len(got) > 0 {
				t.Errorf("%v send something else", got)
			}
			promises = append(promises, c.submit(0, request(collective.Recv, want[0], 0)))
		}
		for _, other := range all {
			promises = append(promises, c.submit(0, request(collective.Send, 0, other)))
		}
		ended(promises...)
		if got := peek("x"); len(got) > 0 {
			t.Errorf("all is received, but %v are said to send", got)
		}
	})
	c := newCluster(t, even(2, 1), 1, collective.Config{})
	c.engine(1).Leave(1, 1)
	must.Soon(t, "a refusal, as the other rank has left", func() bool {
		_, err := c.try(0, collective.Request{Kind: collective.Peek, Name: "x"})
		return err != nil && code(t, err) == collective.CodeShutdown
	})
}

func TestRootedRefused(t *testing.T) {
	c := newCluster(t, even(2, 1), 1, collective.Config{})
	b := make([]byte, 8)
	for what, r := range map[string]collective.Request{
		"send to itself":   {Kind: collective.Send, Root: 0},
		"send outside":     {Kind: collective.Send, Root: 2},
		"recv from nobody": {Kind: collective.Recv, Root: -1},
		"send in a group":  {Kind: collective.Send, Root: 1, Group: 1},
		"a pair by number": {Kind: collective.Broadcast, Group: 1<<31 | 1},
	} {
		r.Name, r.Type, r.In, r.Out = "x", kernel.Float32, b, b
		r.Shape = []int{2}
		if _, err := c.try(0, r); err == nil || code(t, err) != collective.CodeInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Both ends get the error that they do not fit, or that the other one is gone.
func TestSendFails(t *testing.T) {
	c := newCluster(t, even(3, 1), 1, collective.Config{})
	a := c.submit(0, collective.Request{Kind: collective.Send, Name: "x", Root: 1, Type: kernel.Int8, Shape: []int{4}, In: make([]byte, 4)})
	b := c.submit(1, collective.Request{Kind: collective.Recv, Name: "x", Root: 0, Type: kernel.Int8, Shape: []int{5}, Out: make([]byte, 5)})
	for _, p := range []*promise{a, b} {
		if r := p.wait(); code(t, r.Err) != collective.CodeMismatch || !strings.Contains(r.Err.Error(), "int8[5]") {
			t.Errorf("%v", r.Err)
		}
	}
	p := c.submit(1, collective.Request{Kind: collective.Recv, Name: "y", Root: 2, Type: kernel.Int8, Shape: []int{4}, Out: make([]byte, 4)})
	c.engine(2).Leave(0, 2)
	c.engine(2).Leave(1, 2)
	if r := p.wait(); code(t, r.Err) != collective.CodeShutdown {
		t.Errorf("%v", r.Err)
	}
}
