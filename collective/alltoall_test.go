package collective_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
)

// rowsFor is what a rank has for another one, in a world of ranks that have little or much.
func rowsFor(from, to, scale int) int { return scale * (from*7 + to*3) % 11 }

func TestAlltoall(t *testing.T) {
	each(t, worlds, func(t *testing.T, c *cluster, _ int) {
		for _, scale := range []int{0, 1, 100, 4000} {
			for _, spare := range []int{0, 5} {
				c.alltoall("a", scale, spare)()
			}
		}
		first, second := c.alltoall("b", 2, 0), c.alltoall("c", 3000, 1)
		second()
		first()
	})
}

// alltoall submits an operation on all ranks, with some rows that are for no one, and returns what waits for
// it and compares what every rank gets.
func (c *cluster) alltoall(name string, scale, spare int) func() {
	c.t.Helper()
	size := c.layout.size()
	var promises []*promise
	want := make([][]byte, size)
	wantRows := make([][]int, size)
	for rank := range size {
		var splits []int
		rows := spare
		for to := range size {
			n := rowsFor(rank, to, scale)
			if scale > 1000 {
				n = scale / (1 + (rank+to)%3)
			}
			splits = append(splits, n)
			rows += n
		}
		in := encode(kernel.Int16, sample(kernel.Int16, kernel.Sum, rank, rows*3))
		at := 0
		for to, n := range splits {
			want[to] = append(want[to], in[at:at+n*6]...)
			wantRows[to] = append(wantRows[to], n)
			at += n * 6
		}
		promises = append(promises, c.submit(rank, collective.Request{Kind: collective.Alltoall, Name: name,
			Type: kernel.Int16, Shape: []int{rows, 3}, Splits: splits, In: in}))
	}
	return func() {
		c.t.Helper()
		for rank, p := range promises {
			r := p.good()
			if !slices.Equal(r.Rows, wantRows[rank]) || !slices.Equal(r.Shape, []int{len(want[rank]) / 6, 3}) {
				c.t.Fatalf("scale %d: rows %v of shape %v, want %v", scale, r.Rows, r.Shape, wantRows[rank])
			}
			if !bytes.Equal(r.Buffer.Bytes()[r.Lo:r.Hi], want[rank]) {
				c.t.Fatalf("scale %d: %s has something else", scale, p.what)
			}
			r.Buffer.Release()
		}
	}
}

// Without splits every rank gets the same number of rows.
func TestAlltoallEven(t *testing.T) {
	c := newCluster(t, layout{{1}, {0, 2}}, 4, collective.Config{})
	var promises []*promise
	for rank := range 3 {
		promises = append(promises, c.submit(rank, collective.Request{Kind: collective.Alltoall, Name: "e",
			Type: kernel.Int8, Shape: []int{3}, In: []byte{byte(10 * rank), byte(10*rank + 1), byte(10*rank + 2)}}))
	}
	for rank, p := range promises {
		b := byte(rank)
		if r := p.wait(); r.Err != nil || !bytes.Equal(r.Buffer.Bytes()[r.Lo:r.Hi], []byte{b, 10 + b, 20 + b}) {
			t.Errorf("rank %d: %v, or another result", rank, r.Err)
		}
	}
}

// All ranks get the error of splits that do not fit, whichever rank has them; then the name can be used again.
func TestWrongSplits(t *testing.T) {
	for _, test := range []struct {
		name string
		rows int
		give []int
		text string
	}{
		{"too few", 6, []int{4}, "splits are not one number of 32 bits for each rank"},
		{"too many", 6, []int{1, 1, 1, 1}, "splits are not one number of 32 bits for each rank"},
		{"negative", 6, []int{2, -1, 2}, "splits have -1 rows for a rank (0 to 2147483647 are possible)"},
		{"more than there is", 6, []int{3, 2, 2}, "splits are 7 rows, more than there are"},
		{"far too many", 6, []int{1 << 62, 1 << 62, 1 << 62}, "splits have 4611686018427387904 rows for a rank"},
		{"none", 7, nil, "7 rows cannot be dealt evenly, and there are no splits"},
	} {
		for _, kind := range []collective.Kind{collective.Alltoall, collective.Scatter} {
			if kind == collective.Scatter && test.give == nil {
				continue // which deals them as they come
			}
			for _, l := range []layout{even(1, 3), even(3, 1), {{0, 1}, {2}}} {
				c := newCluster(t, l, 4, collective.Config{})
				for wrong := 1; wrong <= 3; wrong++ { // of the last ranks
					var promises []*promise
					for rank := range 3 {
						r := collective.Request{Kind: kind, Name: "x", Root: 2, Type: kernel.Int8, Shape: []int{6}, Splits: []int{1, 2, 3}}
						if rank >= 3-wrong {
							r.Shape, r.Splits = []int{test.rows}, test.give
						}
						if kind == collective.Scatter && rank != 2 {
							r.Splits = nil
						}
						r.In = make([]byte, r.Shape[0])
						promises = append(promises, c.submit(rank, r))
					}
					whose, all := test.text, wrong == 3 && kind == collective.Alltoall
					if !all {
						whose = "rank 2 on host" + fmt.Sprint(len(l)) + " submitted int8[*] whose " + test.text
						if wrong == 2 && kind == collective.Alltoall {
							whose = " submitted int8[*] whose " + test.text
						}
					}
					for rank, p := range promises {
						err := p.wait().Err
						want := collective.CodeMismatch
						if all {
							want = collective.CodeInvalid
						}
						if code(t, err) != want || !strings.Contains(err.Error(), whose) || !strings.Contains(err.Error(), kind.String()+` "x"`) {
							t.Errorf("%s of %s by %d of %v, rank %d: %v, without %q", test.name, kind, wrong, l, rank, err, whose)
						}
					}
				}
				c.alltoall("x", 2, 0)()
			}
		}
	}
}
