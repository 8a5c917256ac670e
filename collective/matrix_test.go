package collective_test

import (
	"bytes"
	"fmt"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

// Every operation × every type × every reduction that is defined for it × worlds of 1 to 9 hosts, with one rank each
// and with several on some, by both ways of a broadcast; against what the naive twin makes of the same inputs.
// Allreduce, which has algorithms to choose from, is TestAlgorithms'.
func TestMatrix(t *testing.T) {
	// A message costs nothing beside its bytes, or all there is: chains and trees.
	costs := []schedule.Cost{{Alpha: 1e-9, Beta: 1e-3}, {Alpha: 1, Beta: 1e-12}}
	for hosts := 1; hosts <= 9; hosts++ {
		for i, l := range []layout{even(hosts, 1), mixed(hosts)} {
			t.Run(fmt.Sprintf("%d/%d", hosts, l.size()), func(t *testing.T) {
				m := matrix{newCluster(t, l, uint64(hosts), collective.Config{Segment: 64, Cost: costs[(hosts+i)%2]})}
				for typ := kernel.Uint8; typ <= kernel.Complex128; typ++ {
					var checks []func()
					for _, op := range reductions(typ) {
						checks = append(checks, m.reduce(typ, op), m.reduceScatter(typ, op))
					}
					checks = append(checks, m.gather(collective.Allgather, typ), m.gather(collective.Gather, typ), m.alltoall(typ),
						m.scatter(typ), m.broadcast(typ), m.sendRecv(typ), m.barrier(typ))
					for _, check := range checks {
						check()
					}
				}
			})
		}
	}
}

// reductions lists those that are defined for a type: of bits and truth not for floats, of order not for complex
// numbers, and no average of bool. Adasum is in TestAdasum, with a twin of its own: it goes by one algorithm whatever
// is asked for.
func reductions(typ kernel.Type) (defined []kernel.Op) {
	for _, op := range allOps {
		plan := kernel.Plan{Type: typ, Op: op, Pre: 1, Post: 1}
		if plan.Check() == nil && !(typ == kernel.Bool && op == kernel.Average) {
			defined = append(defined, op)
		}
	}
	return defined
}

// mixed is a layout with one to three ranks on a host, dealt in turns.
func mixed(hosts int) layout {
	l := make(layout, hosts)
	rank := 0
	for turn := range 3 {
		for i := range hosts {
			if i%3 >= turn {
				l[i] = append(l[i], rank)
				rank++
			}
		}
	}
	return l
}

// matrix submits operations of a kind on all ranks; what the methods return waits for them and compares.
type matrix struct{ *cluster }

func (m matrix) input(typ kernel.Type, op kernel.Op, rank, n int) []byte {
	return encode(typ, sample(typ, op, rank, n))
}

// on submits a part on every rank.
func (m matrix) on(kind collective.Kind, typ kernel.Type, what any, part func(rank int, r *collective.Request)) []*promise {
	m.t.Helper()
	var all []*promise
	for rank := range m.layout.size() {
		r := collective.Request{Kind: kind, Name: fmt.Sprint(kind, " ", typ, " ", what), Type: typ, Op: kernel.Sum}
		part(rank, &r)
		all = append(all, m.submit(rank, r))
	}
	return all
}

// result waits for an operation and returns what it brought.
func (m matrix) result(p *promise) collective.Result {
	m.t.Helper()
	r := p.wait()
	if r.Err != nil {
		m.t.Fatalf("%s: %v", p.what, r.Err)
	}
	return r
}

func (m matrix) expect(p *promise, got, want []byte) {
	m.t.Helper()
	if !bytes.Equal(got, want) {
		m.t.Fatalf("%s: got % x, want % x", p.what, got, want)
	}
}

const rows, width = 11, 3 // of what is reduced

func (m matrix) sums(typ kernel.Type, op kernel.Op) []byte {
	var inputs [][]complex128
	for rank := range m.layout.size() {
		inputs = append(inputs, sample(typ, op, rank, rows*width))
	}
	return encode(typ, fold(typ, op, 1, 1, inputs))
}

func (m matrix) reduce(typ kernel.Type, op kernel.Op) func() {
	root := m.layout.size() / 2
	all := m.on(collective.Reduce, typ, op, func(rank int, r *collective.Request) {
		r.Op, r.Root, r.Shape, r.In = op, root, []int{rows, width}, m.input(typ, op, rank, rows*width)
	})
	return func() {
		for rank, p := range all {
			r := m.result(p)
			if rank == root {
				m.expect(p, r.Buffer.Bytes()[r.Lo:r.Hi], m.sums(typ, op))
			} else if r.Lo != r.Hi {
				m.t.Errorf("%s: has %d bytes of the result", p.what, r.Hi-r.Lo)
			}
		}
	}
}

func (m matrix) reduceScatter(typ kernel.Type, op kernel.Op) func() {
	all := m.on(collective.ReduceScatter, typ, op, func(rank int, r *collective.Request) {
		r.Op, r.Shape, r.In = op, []int{rows, width}, m.input(typ, op, rank, rows*width)
	})
	return func() {
		want := m.sums(typ, op)
		for rank, p := range all {
			r := m.result(p)
			mine := rows / len(all)
			if rank < rows%len(all) {
				mine++
			}
			n := mine * width * typ.Size()
			if r.Shape[0] != mine || r.Shape[1] != width {
				m.t.Errorf("%s: shape %v", p.what, r.Shape)
			}
			m.expect(p, r.Buffer.Bytes()[r.Lo:r.Hi], want[:n])
			want = want[n:]
		}
	}
}

// gather has ranks with different numbers of rows, some with none.
func (m matrix) gather(kind collective.Kind, typ kernel.Type) func() {
	size := m.layout.size()
	count := func(rank int) int { return (2*rank + 1) % 4 * (rank % 5) }
	all := m.on(kind, typ, "", func(rank int, r *collective.Request) {
		r.Root, r.Shape, r.In = size-1, []int{count(rank), width}, m.input(typ, kernel.Sum, rank, count(rank)*width)
	})
	return func() {
		var want []byte
		for rank := range size {
			want = append(want, m.input(typ, kernel.Sum, rank, count(rank)*width)...)
		}
		for rank, p := range all {
			r := m.result(p)
			if kind == collective.Gather && rank != size-1 {
				if r.Lo != r.Hi {
					m.t.Errorf("%s: has %d bytes of the result", p.what, r.Hi-r.Lo)
				}
				continue
			}
			m.expect(p, r.Buffer.Bytes()[r.Lo:r.Hi], want)
			for from, n := range r.Rows {
				if n != count(from) {
					m.t.Errorf("%s: rows %v", p.what, r.Rows)
				}
			}
		}
	}
}

func (m matrix) alltoall(typ kernel.Type) func() {
	size := m.layout.size()
	split := func(from, to int) int { return (from + 2*to) % 3 }
	splits := func(from int) (all []int, sum int) {
		for to := range size {
			all, sum = append(all, split(from, to)), sum+split(from, to)
		}
		return all, sum
	}
	all := m.on(collective.Alltoall, typ, "", func(rank int, r *collective.Request) {
		s, n := splits(rank)
		r.Splits, r.Shape, r.In = s, []int{n, width}, m.input(typ, kernel.Sum, rank, n*width)
	})
	return func() {
		row := width * typ.Size()
		for to, p := range all {
			var want []byte
			for from := range size {
				s, n := splits(from)
				in := m.input(typ, kernel.Sum, from, n*width)
				for _, before := range s[:to] {
					in = in[before*row:]
				}
				want = append(want, in[:split(from, to)*row]...)
			}
			r := m.result(p)
			m.expect(p, r.Buffer.Bytes()[r.Lo:r.Hi], want)
		}
	}
}

func (m matrix) scatter(typ kernel.Type) func() {
	size := m.layout.size()
	root := size / 3
	var splits []int
	total := 0
	for to := range size {
		splits, total = append(splits, (to+1)%3), total+(to+1)%3
	}
	all := m.on(collective.Scatter, typ, "", func(rank int, r *collective.Request) {
		if r.Root, r.Shape = root, []int{0, width}; rank == root {
			r.Splits, r.Shape, r.In = splits, []int{total, width}, m.input(typ, kernel.Sum, rank, total*width)
		}
	})
	return func() {
		rest := m.input(typ, kernel.Sum, root, total*width)
		for rank, p := range all {
			r := m.result(p)
			n := splits[rank] * width * typ.Size()
			m.expect(p, r.Buffer.Bytes()[r.Lo:r.Hi], rest[:n])
			rest = rest[n:]
		}
	}
}

func (m matrix) broadcast(typ kernel.Type) func() {
	root := m.layout.size() - 1
	outs := make([][]byte, root+1)
	all := m.on(collective.Broadcast, typ, "", func(rank int, r *collective.Request) {
		outs[rank] = m.input(typ, kernel.Sum, rank, 50)
		r.Root, r.Shape, r.In, r.Out = root, []int{50}, outs[rank], outs[rank]
	})
	return func() {
		for rank, p := range all {
			m.result(p)
			m.expect(p, outs[rank], m.input(typ, kernel.Sum, root, 50))
		}
	}
}

// sendRecv sends from every rank to the next one.
func (m matrix) sendRecv(typ kernel.Type) func() {
	size := m.layout.size()
	if size == 1 {
		return func() {}
	}
	name := func(from int) string { return fmt.Sprint(typ, " from ", from) }
	sent := m.on(collective.Send, typ, "", func(rank int, r *collective.Request) {
		r.Name, r.Root, r.Shape, r.In = name(rank), (rank+1)%size, []int{20}, m.input(typ, kernel.Sum, rank, 20)
	})
	outs := make([][]byte, size)
	got := m.on(collective.Recv, typ, "", func(rank int, r *collective.Request) {
		outs[rank] = make([]byte, 20*typ.Size())
		from := (rank + size - 1) % size
		r.Name, r.Root, r.Shape, r.Out = name(from), from, []int{20}, outs[rank]
	})
	return func() {
		for rank := range size {
			m.result(sent[rank])
			m.result(got[rank])
			m.expect(got[rank], outs[rank], m.input(typ, kernel.Sum, (rank+size-1)%size, 20))
		}
	}
}

func (m matrix) barrier(typ kernel.Type) func() {
	all := m.on(collective.Barrier, typ, "", func(int, *collective.Request) {})
	return func() {
		for _, p := range all {
			m.result(p)
		}
	}
}
