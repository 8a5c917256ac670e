package collective_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
)

func TestMismatch(t *testing.T) {
	f32 := func(n ...int) collective.Request {
		size := 4
		for _, d := range n {
			size *= d
		}
		return collective.Request{Kind: collective.Allreduce, Type: kernel.Float32, Op: kernel.Sum, Shape: n, In: make([]byte, size), Out: make([]byte, size)}
	}
	with := func(r collective.Request, f func(*collective.Request)) collective.Request { f(&r); return r }
	for _, test := range []struct {
		name   string
		layout layout
		parts  []collective.Request // by rank
		text   string
	}{
		{"shape across hosts", layout{{0, 1}, {2}}, []collective.Request{f32(10), f32(10), f32(11)},
			`allreduce "x": ranks 0,1 on host1 submitted float32[10], rank 2 on host2 submitted float32[11]`},
		{"shape on one host of two", layout{{0, 1}, {2}}, []collective.Request{f32(10), f32(11), f32(10)},
			`allreduce "x": rank 0 on host1 and rank 2 on host2 submitted float32[10], rank 1 on host1 submitted float32[11]`},
		{"shape on one host alone", layout{{0, 1, 2}}, []collective.Request{f32(10), f32(2, 5), f32(10)},
			`allreduce "x": ranks 0,2 on host1 submitted float32[10], rank 1 on host1 submitted float32[2,5]`},
		{"type", layout{{0}, {1}}, []collective.Request{f32(2), with(f32(2), func(r *collective.Request) { r.Type = kernel.Int32 })},
			`allreduce "x": rank 0 on host1 submitted float32[2], rank 1 on host2 submitted int32[2]`},
		{"reduction", layout{{0}, {1}}, []collective.Request{f32(2), with(f32(2), func(r *collective.Request) { r.Op = kernel.Max })},
			`allreduce "x": rank 0 on host1 submitted sum of float32[2], rank 1 on host2 submitted max of float32[2]`},
		{"prescale", layout{{0}, {1}}, []collective.Request{f32(2), with(f32(2), func(r *collective.Request) { r.Pre = 0.5 })},
			`allreduce "x": rank 0 on host1 submitted float32[2], rank 1 on host2 submitted float32[2] prescale 0.5`},
		{"kind", layout{{0}, {1}, {2}}, []collective.Request{f32(2),
			with(f32(2), func(r *collective.Request) { r.Kind = collective.Broadcast }), {Kind: collective.Barrier}},
			`"x": rank 0 on host1 submitted allreduce sum of float32[2], rank 1 on host2 submitted broadcast float32[2] from root 0, rank 2 on host3 submitted barrier`},
		{"root", layout{{0}, {1}}, []collective.Request{
			with(f32(2), func(r *collective.Request) { r.Kind = collective.Broadcast }),
			with(f32(2), func(r *collective.Request) { r.Kind, r.Root = collective.Broadcast, 1 })},
			`broadcast "x": rank 0 on host1 submitted float32[2] from root 0, rank 1 on host2 submitted float32[2] from root 1`},
		{"packed of others", layout{{0}, {1}, {2}}, []collective.Request{
			with(f32(2), func(r *collective.Request) { r.Kind, r.Pre = collective.Broadcast, 1<<31-1 }),
			with(f32(2), func(r *collective.Request) { r.Kind, r.Pre = collective.Broadcast, 1<<31-2 }),
			with(f32(2), func(r *collective.Request) { r.Kind = collective.Broadcast })},
			`broadcast "x": rank 0 on host1 submitted float32[2] packed of several, of shapes 7ffffffe, rank 1 on host2 submitted float32[2] packed of several, of shapes 7ffffffd, rank 2 on host3 submitted float32[2]`},
		{"columns", layout{{0}, {1}}, []collective.Request{
			with(f32(2, 3), func(r *collective.Request) { r.Kind = collective.Allgather }),
			with(f32(3, 2), func(r *collective.Request) { r.Kind = collective.Allgather })},
			`allgather "x": rank 0 on host1 submitted float32[*,3], rank 1 on host2 submitted float32[*,2]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, test.layout, 8, collective.Config{})
			for range 2 { // the name can be used again
				var promises []*promise
				for rank, r := range test.parts {
					r.Name = "x"
					if r.Kind == collective.Allgather {
						r.Out = nil
					}
					promises = append(promises, c.submit(rank, r))
				}
				for _, p := range promises {
					r := p.wait()
					if r.Err == nil {
						t.Fatalf("%s succeeded", p.what)
					}
					if code(t, r.Err) != collective.CodeMismatch || r.Err.Error() != test.text {
						t.Errorf("%s:\n got %s\nwant %s", p.what, r.Err, test.text)
					}
				}
			}
			c.allreduce("x", kernel.Float32, kernel.Sum, 100, 1, 1)()
		})
	}
}

func TestRefused(t *testing.T) {
	c := newCluster(t, layout{{0, 1}, {2}}, 9, collective.Config{})
	good := collective.Request{Kind: collective.Allreduce, Name: "x", Type: kernel.Float32, Op: kernel.Sum,
		Shape: []int{2, 3}, In: make([]byte, 24), Out: make([]byte, 24)}
	both := make([]byte, 28)
	for _, test := range []struct {
		name   string
		rank   int
		change func(*collective.Request)
	}{
		{"no name", 0, func(r *collective.Request) { r.Name = "" }},
		{"long name", 0, func(r *collective.Request) { r.Name = strings.Repeat("x", collective.MaxName+1) }},
		{"unknown kind", 0, func(r *collective.Request) { r.Kind = 99 }},
		{"unknown type", 0, func(r *collective.Request) { r.Type = 0 }},
		{"unknown reduction", 0, func(r *collective.Request) { r.Op = 99 }},
		{"unknown group", 0, func(r *collective.Request) { r.Group = 5 }},
		{"a root that is no rank", 0, func(r *collective.Request) { r.Kind, r.Root = collective.Broadcast, 1<<32 }},
		{"input too short", 0, func(r *collective.Request) { r.In = r.In[1:] }},
		{"output too short", 0, func(r *collective.Request) { r.Out = r.Out[1:] }},
		{"no output", 0, func(r *collective.Request) { r.Out = nil }},
		{"overlap", 0, func(r *collective.Request) { r.In, r.Out = both[:24], both[4:] }},
		{"negative shape", 0, func(r *collective.Request) { r.Shape = []int{-2, -3} }},
		{"shape overflows", 0, func(r *collective.Request) { r.Shape = []int{1 << 32, 1 << 32} }},
		{"empty shape overflows", 0, func(r *collective.Request) {
			r.Shape, r.In, r.Out = []int{0, 1 << 32, 1 << 32}, nil, nil
		}},
		{"too many dimensions", 0, func(r *collective.Request) { r.Shape = append(slices.Repeat([]int{1}, 31), 2, 3) }},
		{"scatter by an unknown reduction", 0, func(r *collective.Request) { r.Kind, r.Op = collective.ReduceScatter, 99 }},
		{"rank of another host", 2, func(r *collective.Request) {}},
		{"no such rank", 7, func(r *collective.Request) {}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := good
			test.change(&r)
			r.Client, r.Pre, r.Post = &promise{t: t, what: test.name, ch: make(chan collective.Result, 1)}, 1, 1
			err := c.engines[0].Submit(test.rank, r)
			if err == nil {
				t.Fatal("accepted")
			}
			if code(t, err) != collective.CodeInvalid {
				t.Errorf("%v has another code", err)
			}
		})
	}
	t.Run("name in flight", func(t *testing.T) {
		p := c.submit(0, good)
		if _, err := c.try(0, good); err == nil || code(t, err) != collective.CodeInvalid {
			t.Errorf("second part: %v", err)
		}
		promises := []*promise{p}
		for rank := 1; rank < 3; rank++ {
			r := good
			r.In, r.Out = make([]byte, 24), make([]byte, 24)
			promises = append(promises, c.submit(rank, r))
		}
		for _, p := range promises {
			if res := p.wait(); res.Err != nil {
				t.Error(res.Err)
			}
		}
	})
	t.Run("scalar", func(t *testing.T) {
		var promises []*promise
		for rank := range 3 {
			r := good
			r.Shape, r.In, r.Out = nil, make([]byte, 4), make([]byte, 4)
			promises = append(promises, c.submit(rank, r))
		}
		for _, p := range promises {
			if res := p.wait(); res.Err != nil {
				t.Error(res.Err)
			}
		}
	})
	t.Run("no world", func(t *testing.T) {
		e := collective.New(collective.Config{})
		if err := e.Submit(0, good); err == nil {
			t.Error("accepted")
		}
	})
}

// What no rank can do is refused when all have submitted it. If only some do, all get an error with what each
// submitted, although those could have been refused at once; then the name can be used again.
func TestFlaws(t *testing.T) {
	sound := func(kind collective.Kind) collective.Request {
		return collective.Request{Kind: kind, Name: "x", Type: kernel.Float32, Op: kernel.Sum, Shape: []int{6}, Pre: 1, Post: 1}
	}
	for _, test := range []struct {
		name   string
		kind   collective.Kind
		change func(*collective.Request)
		text   string // of the refusal
		told   string // of what one rank submitted, where others submitted what can be done
	}{
		{"adasum of integers", collective.Allreduce, func(r *collective.Request) { r.Op, r.Type = kernel.Adasum, kernel.Int32 }, "adasum is not defined for int32", "adasum of int32[6]"},
		{"adasum of complex", collective.Allreduce, func(r *collective.Request) { r.Op, r.Type = kernel.Adasum, kernel.Complex64 }, "adasum is not defined for complex64", "adasum of complex64[6]"},
		{"adasum by rows", collective.ReduceScatter, func(r *collective.Request) { r.Op = kernel.Adasum }, "adasum is not defined for float32", "adasum of float32[6]"},
		{"adasum of infinity", collective.Allreduce, func(r *collective.Request) { r.Op, r.Pre = kernel.Adasum, math.Inf(1) }, "scale factor", "prescale +Inf"},
		{"maximum of complex", collective.Allreduce, func(r *collective.Request) { r.Op, r.Type = kernel.Max, kernel.Complex64 }, "max is not defined for complex64", "max of complex64[6]"},
		{"average of bool", collective.Allreduce, func(r *collective.Request) { r.Op, r.Type = kernel.Average, kernel.Bool }, "cannot be scaled", "average of bool[6]"},
		{"scaled by nothing", collective.Allreduce, func(r *collective.Request) { r.Post = math.Inf(1) }, "scale factor", "postscale +Inf"},
		{"bits of floats", collective.ReduceScatter, func(r *collective.Request) { r.Op = kernel.BitAnd }, "bitand is not defined for float32", "bitand of float32[6]"},
		{"adasum to one", collective.Reduce, func(r *collective.Request) { r.Op = kernel.Adasum }, "adasum is not defined for float32", "adasum of float32[6]"},
		{"broadcast from nobody", collective.Broadcast, func(r *collective.Request) { r.Root = 99 }, "root rank 99 is not in the group", "from root 99"},
		{"broadcast from before all", collective.Broadcast, func(r *collective.Request) { r.Root = -1 }, "root rank -1 is not in the group", "from root -1"},
		{"reduce to nobody", collective.Reduce, func(r *collective.Request) { r.Root = 99 }, "root rank 99 is not in the group", "to root 99"},
		{"gather to nobody", collective.Gather, func(r *collective.Request) { r.Root = -1 }, "root rank -1 is not in the group", "to root -1"},
		{"scatter from nobody", collective.Scatter, func(r *collective.Request) { r.Root = 99 }, "root rank 99 is not in the group", "from root 99"},
		{"allgather of scalars", collective.Allgather, func(r *collective.Request) { r.Shape = nil }, "a scalar has no rows", "float32[]"},
		{"alltoall of scalars", collective.Alltoall, func(r *collective.Request) { r.Shape = nil }, "a scalar has no rows", "float32[]"},
		{"gather of scalars", collective.Gather, func(r *collective.Request) { r.Shape = nil }, "a scalar has no rows", "float32[]"},
		{"scatter of scalars", collective.Scatter, func(r *collective.Request) { r.Shape = nil }, "a scalar has no rows", "float32[]"},
		{"reducescatter of scalars", collective.ReduceScatter, func(r *collective.Request) { r.Shape = nil }, "a scalar has no rows", "float32[]"},
	} {
		for _, l := range []layout{even(1, 1), even(1, 3), even(3, 1), {{0, 1}, {2}}} {
			c := newCluster(t, l, 3, collective.Config{})
			size := l.size()
			for flawed := 1; flawed <= size; flawed++ { // on the last ones
				var promises []*promise
				for rank := range size {
					r := sound(test.kind)
					if rank >= size-flawed {
						test.change(&r)
					}
					n := r.Type.Size()
					for _, d := range r.Shape {
						n *= d
					}
					r.In = make([]byte, n)
					if test.kind == collective.Allreduce || test.kind == collective.Broadcast {
						r.Out = r.In
					}
					promises = append(promises, c.submit(rank, r))
				}
				for rank, p := range promises {
					err := p.wait().Err
					want, words := collective.CodeInvalid, []string{test.text, `"x"`}
					if flawed < size {
						want, words = collective.CodeMismatch, []string{test.told, fmt.Sprint("rank ", size-1), "rank 0"}
						if flawed > 1 || len(l[0]) > 1 {
							words = words[:1] // several have it in common
						}
					}
					if code(t, err) != want {
						t.Fatalf("%s by %d of %v, rank %d: %v", test.name, flawed, l, rank, err)
					}
					for _, word := range words {
						if !strings.Contains(err.Error(), word) {
							t.Errorf("%s by %d of %v, rank %d: %v, without %q", test.name, flawed, l, rank, err, word)
						}
					}
				}
				c.allreduce("x", kernel.Float32, kernel.Sum, 100, 1, 1)()
			}
		}
	}
}

func TestWorldIsChecked(t *testing.T) {
	for name, w := range map[string]collective.EngineWorld{
		"no hosts":       {},
		"self beyond":    {Hosts: []collective.HostRanks{{Ranks: []int{0}}}, Self: 1, Size: 1},
		"rank twice":     {Hosts: []collective.HostRanks{{Ranks: []int{0, 0}}}, Size: 2},
		"rank beyond":    {Hosts: []collective.HostRanks{{Ranks: []int{3}}}, Size: 1},
		"rank missing":   {Hosts: []collective.HostRanks{{Ranks: []int{0}}}, Size: 2},
		"id twice":       {Hosts: []collective.HostRanks{{ID: 1, Ranks: []int{0}}, {ID: 1, Ranks: []int{1}}}, Size: 2},
		"no transport":   {Hosts: []collective.HostRanks{{ID: 0, Ranks: []int{0}}, {ID: 1, Ranks: []int{1}}}, Size: 2},
		"negative size":  {Hosts: []collective.HostRanks{{}}, Size: -1},
		"negative rank":  {Hosts: []collective.HostRanks{{Ranks: []int{-1}}}, Size: 1},
		"negative id":    {Hosts: []collective.HostRanks{{ID: -1, Ranks: []int{0}}}, Size: 1},
		"self before":    {Hosts: []collective.HostRanks{{Ranks: []int{0}}}, Self: -1, Size: 1},
		"too many ranks": {Hosts: []collective.HostRanks{{Ranks: []int{0, 1}}}, Size: 1},
	} {
		if err := collective.New(collective.Config{}).SetWorld(w); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
