package collective_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
)

// share returns the rows [from, to) that the i-th of n ranks gets of rows.
func share(rows, i, n int) (from, to int) {
	each, more := rows/n, rows%n
	return i*each + min(i, more), (i+1)*each + min(i+1, more)
}

func TestReduceScatter(t *testing.T) {
	each(t, worlds, func(t *testing.T, c *cluster, size int) {
		for _, rows := range []int{0, 1, size, 2*size + 1, 997} {
			for _, typ := range []kernel.Type{kernel.Int8, kernel.Float16, kernel.Float32, kernel.Complex128} {
				var checks []func()
				for _, op := range ops {
					if (kernel.Plan{Type: typ, Op: op, Pre: 1, Post: 1}).Check() != nil {
						continue
					}
					pre, post := 1.0, 1.0
					if op == kernel.Average {
						pre, post = 2, 4
					}
					checks = append(checks, c.reduceScatter(fmt.Sprintf("%s.%s.%d", typ, op, rows), typ, op, []int{rows, 3}, pre, post))
				}
				for _, check := range checks {
					check()
				}
			}
		}
		c.reduceScatter("rows of nothing", kernel.Int32, kernel.Sum, []int{7, 0}, 1, 1)()
	})
}

// reduceScatter submits an operation on all ranks and returns what waits for it and compares every rank's
// rows to the naive twin's.
func (c *cluster) reduceScatter(name string, typ kernel.Type, op kernel.Op, shape []int, pre, post float64) func() {
	c.t.Helper()
	size, columns := c.layout.size(), shape[1]
	inputs := make([][]complex128, size)
	promises := make([]*promise, size)
	for rank := range size {
		inputs[rank] = sample(typ, op, rank, shape[0]*columns)
		promises[rank] = c.submit(rank, collective.Request{Kind: collective.ReduceScatter, Name: name, Type: typ, Op: op,
			Shape: shape, In: encode(typ, inputs[rank]), Pre: pre, Post: post})
	}
	return func() {
		c.t.Helper()
		all := fold(typ, op, pre, post, inputs)
		for rank, p := range promises {
			r := p.good()
			from, to := share(shape[0], rank, size)
			row := columns * typ.Size()
			if !slices.Equal(r.Shape, []int{to - from, columns}) || !bytes.Equal(r.Buffer.Bytes()[r.Lo:r.Hi], all[from*row:to*row]) {
				c.t.Fatalf("%s: shape %v, rows [%d,%d) wanted, or another result", p.what, r.Shape, from, to)
			}
			r.Buffer.Release()
		}
	}
}
