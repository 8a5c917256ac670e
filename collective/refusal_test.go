package collective_test

import (
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
			`allreduce "x": rank 0 on host1 submitted float32[2] prescale 1, rank 1 on host2 submitted float32[2] prescale 0.5`},
		{"kind", layout{{0}, {1}, {2}}, []collective.Request{f32(2),
			with(f32(2), func(r *collective.Request) { r.Kind = collective.Broadcast }), {Kind: collective.Barrier}},
			`"x": rank 0 on host1 submitted allreduce sum of float32[2], rank 1 on host2 submitted broadcast float32[2], rank 2 on host3 submitted barrier`},
		{"root", layout{{0}, {1}}, []collective.Request{
			with(f32(2), func(r *collective.Request) { r.Kind = collective.Broadcast }),
			with(f32(2), func(r *collective.Request) { r.Kind, r.Root = collective.Broadcast, 1 })},
			`broadcast "x": rank 0 on host1 submitted float32[2] from root 0, rank 1 on host2 submitted float32[2] from root 1`},
		{"packed of others", layout{{0}, {1}, {2}}, []collective.Request{
			with(f32(2), func(r *collective.Request) { r.Kind, r.Pre = collective.Broadcast, 1<<31-1 }),
			with(f32(2), func(r *collective.Request) { r.Kind, r.Pre = collective.Broadcast, 1<<31-2 }),
			with(f32(2), func(r *collective.Request) { r.Kind = collective.Broadcast })},
			`broadcast "x": rank 0 on host1 submitted float32[2] packed of several, of shapes 7fffffff, rank 1 on host2 submitted float32[2] packed of several, of shapes 7ffffffe, rank 2 on host3 submitted float32[2]`},
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
		{"kind to come", 0, func(r *collective.Request) { r.Kind = collective.Alltoall }},
		{"unknown type", 0, func(r *collective.Request) { r.Type = 0 }},
		{"unknown reduction", 0, func(r *collective.Request) { r.Op = 99 }},
		{"adasum of integers", 0, func(r *collective.Request) { r.Op, r.Type = kernel.Adasum, kernel.Int32 }},
		{"maximum of complex", 0, func(r *collective.Request) { r.Type, r.Op, r.Shape = kernel.Complex64, kernel.Max, []int{3} }},
		{"average of bool", 0, func(r *collective.Request) { r.Type, r.Op, r.Shape = kernel.Bool, kernel.Average, []int{24} }},
		{"unknown group", 0, func(r *collective.Request) { r.Group = 5 }},
		{"unknown root", 0, func(r *collective.Request) { r.Kind, r.Root = collective.Broadcast, 3 }},
		{"negative root", 0, func(r *collective.Request) { r.Kind, r.Root = collective.Broadcast, -1 }},
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
		{"gather scalars", 0, func(r *collective.Request) { r.Kind, r.Shape, r.In = collective.Allgather, nil, r.In[:4] }},
		{"scatter scalars", 0, func(r *collective.Request) { r.Kind, r.Shape, r.In = collective.ReduceScatter, nil, r.In[:4] }},
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

func TestWorldIsChecked(t *testing.T) {
	for name, w := range map[string]collective.World{
		"no hosts":       {},
		"self beyond":    {Hosts: []collective.Member{{Ranks: []int{0}}}, Self: 1, Size: 1},
		"rank twice":     {Hosts: []collective.Member{{Ranks: []int{0, 0}}}, Size: 2},
		"rank beyond":    {Hosts: []collective.Member{{Ranks: []int{3}}}, Size: 1},
		"rank missing":   {Hosts: []collective.Member{{Ranks: []int{0}}}, Size: 2},
		"id twice":       {Hosts: []collective.Member{{ID: 1, Ranks: []int{0}}, {ID: 1, Ranks: []int{1}}}, Size: 2},
		"no transport":   {Hosts: []collective.Member{{ID: 0, Ranks: []int{0}}, {ID: 1, Ranks: []int{1}}}, Size: 2},
		"negative size":  {Hosts: []collective.Member{{}}, Size: -1},
		"negative rank":  {Hosts: []collective.Member{{Ranks: []int{-1}}}, Size: 1},
		"negative id":    {Hosts: []collective.Member{{ID: -1, Ranks: []int{0}}}, Size: 1},
		"self before":    {Hosts: []collective.Member{{Ranks: []int{0}}}, Self: -1, Size: 1},
		"too many ranks": {Hosts: []collective.Member{{Ranks: []int{0, 1}}}, Size: 1},
	} {
		if err := collective.New(collective.Config{}).SetWorld(w); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
