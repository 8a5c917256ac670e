package collective_test

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
)

func TestBroadcast(t *testing.T) {
	each(t, worlds, func(t *testing.T, c *cluster, size int) {
		for root := range size {
			for _, n := range []int{0, 1, 1000, 10_000} {
				outs := make([][]byte, size)
				var promises []*promise
				want := encode(kernel.Float32, sample(kernel.Float32, kernel.Sum, root, n))
				for rank := range size {
					in := encode(kernel.Float32, sample(kernel.Float32, kernel.Sum, rank, n))
					outs[rank] = in
					if rank%2 == 0 {
						outs[rank] = make([]byte, len(in))
					}
					promises = append(promises, c.submit(rank, collective.Request{Kind: collective.Broadcast, Name: "b",
						Root: root, Type: kernel.Float32, Shape: []int{n}, In: in, Out: outs[rank]}))
				}
				for rank, p := range promises {
					p.good()
					if !bytes.Equal(outs[rank], want) {
						t.Fatalf("root %d, %d elements: rank %d has something else", root, n, rank)
					}
				}
			}
		}
	})
}

// counted is result memory that knows who still uses it.
type counted struct {
	b    []byte
	refs *atomic.Int64
}

func (c counted) Bytes() []byte { return c.b }
func (c counted) Retain()       { c.refs.Add(1) }
func (c counted) Release()      { c.refs.Add(-1) }

type counting struct{ refs *atomic.Int64 }

func (a counting) Alloc(n int) (collective.Buffer, error) {
	a.refs.Add(1)
	return counted{make([]byte, n), a.refs}, nil
}

func TestAllgather(t *testing.T) {
	each(t, worlds, func(t *testing.T, c *cluster, size int) {
		for _, scale := range []int{0, 1, 40, 3000} {
			var promises []*promise
			var want []byte
			var wantRows []int
			total := 0
			for rank := range size {
				rows := scale * (rank + 1) % 97 // some have none
				in := encode(kernel.Int16, sample(kernel.Int16, kernel.Sum, rank, rows*3))
				want = append(want, in...)
				wantRows = append(wantRows, rows)
				total += rows
				promises = append(promises, c.submit(rank, collective.Request{Kind: collective.Allgather, Name: "g",
					Type: kernel.Int16, Shape: []int{rows, 3}, In: in}))
			}
			for _, p := range promises {
				r := p.good()
				if !bytes.Equal(r.Buffer.Bytes(), want) {
					t.Fatalf("scale %d: %s has something else", scale, p.what)
				}
				if !slices.Equal(r.Rows, wantRows) || !slices.Equal(r.Shape, []int{total, 3}) {
					t.Fatalf("scale %d: rows %v of shape %v, want %v of %d", scale, r.Rows, r.Shape, wantRows, total)
				}
				r.Buffer.Release()
			}
		}
	})
}

type noMemory struct{}

func (noMemory) Alloc(int) (collective.Buffer, error) { return nil, errors.New("out of memory") }

func TestBarrier(t *testing.T) {
	each(t, worlds, func(t *testing.T, c *cluster, size int) {
		var promises []*promise
		for rank := range size {
			for _, p := range promises {
				if p.done() {
					t.Fatal("a barrier opened before all ranks were there")
				}
			}
			promises = append(promises, c.submit(rank, barrier))
		}
		ended(promises...)
	})
}
