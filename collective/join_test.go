package collective_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/contrib/must"
)

// do submits and waits.
func (c *cluster) do(rank int, r collective.Request) (collective.Result, error) {
	p, err := c.try(rank, r)
	if err != nil {
		return collective.Result{}, err
	}
	res := p.wait()
	return res, res.Err
}

// TestJoin: ranks with different numbers of steps, several rounds. Every sum has the parts of exactly the ranks that
// still have data, and all ranks agree on who joined last.
func TestJoin(t *testing.T) {
	const rounds, n = 3, 40
	for _, l := range []layout{even(1, 1), even(1, 3), even(2, 1), even(2, 2), even(3, 1), {{0, 2}, {1}}, {{4, 0}, {3}, {1, 2}}, even(3, 3), even(8, 1)} {
		for _, direct := range []int64{0, -1} {
			t.Run(fmt.Sprintf("%v/%d", l, direct), func(t *testing.T) {
				c := newCluster(t, l, uint64(l.size()), collective.Config{Segment: 64, Direct: direct})
				size := l.size()
				steps := func(round, rank int) int { return (rank*7 + round*3) % 5 }
				last := make([][rounds]int, size)
				var all sync.WaitGroup
				for rank := range size {
					all.Go(func() {
						for round := range rounds {
							for step := range steps(round, rank) {
								buf := make([]byte, 4*n)
								for i := range n {
									binary.LittleEndian.PutUint32(buf[4*i:], uint32(rank+1+i))
								}
								// The name comes round, as it does in training.
								_, err := c.do(rank, collective.Request{Kind: collective.Allreduce, Name: fmt.Sprint("x", step%2), Type: kernel.Int32, Op: kernel.Sum, Shape: []int{n}, In: buf, Out: buf})
								want := 0
								for r := range size {
									if steps(round, r) > step {
										want += r + 1 + n - 1
									}
								}
								if got := int(binary.LittleEndian.Uint32(buf[4*(n-1):])); err != nil || got != want {
									t.Errorf("round %d, rank %d, step %d: %d, want %d, error %v", round, rank, step, got, want, err)
								}
							}
							res, err := c.do(rank, join)
							if err != nil {
								t.Errorf("rank %d: %v", rank, err)
								return
							}
							last[rank][round] = res.Rows[0]
						}
					})
				}
				all.Wait()
				for round := range rounds {
					most := 0
					for r := range size {
						most = max(most, steps(round, r))
					}
					for r := range size {
						if last[r][round] != last[0][round] {
							t.Fatalf("round %d: rank %d says %d joined last, rank 0 says %d", round, r, last[r][round], last[0][round])
						}
					}
					if steps(round, last[0][round]) != most {
						t.Errorf("round %d: rank %d cannot have joined last", round, last[0][round])
					}
				}
			})
		}
	}
}

func lastToJoin(want int, joins []*promise) {
	for _, p := range joins {
		if r := p.good(); r.Rows[0] != want {
			p.t.Errorf("last rank %v, want %d", r.Rows, want)
		}
	}
}

// TestJoinAsync: what was submitted before a rank joins still has its part.
func TestJoinAsync(t *testing.T) {
	c := newCluster(t, even(2, 2), 3, collective.Config{})
	var open []*promise
	var outs [][]byte
	for _, rank := range []int{0, 3} {
		b := []byte{1}
		outs = append(outs, b)
		open = append(open, c.submit(rank, sumIn(0, "x", b)))
	}
	joins := []*promise{c.submit(0, join), c.submit(1, join), c.submit(2, join)}
	for i, p := range open {
		if p.good(); outs[i][0] != 2 {
			t.Errorf("sum %d", outs[i][0])
		}
	}
	if _, err := c.try(0, barrier); err == nil || !strings.Contains(err.Error(), "rank 0 has joined") {
		t.Errorf("a rank that joined went on: %v", err)
	}
	lastToJoin(3, append(joins, c.submit(3, join)))
}

// TestJoinPending: what is pending of a rank that joins is waited for, and nothing else of it; and so is the end of
// the round.
func TestJoinPending(t *testing.T) {
	for _, resolved := range []bool{false, true} {
		c := newCluster(t, even(1, 3), 3, collective.Config{})
		sum := func(rank int, name string) (*promise, []byte) {
			b := []byte{byte(1 << rank)}
			return c.submit(rank, sumIn(0, name, b)), b
		}
		joins := []*promise{c.submit(0, collective.Request{Kind: collective.Join, Pending: []string{"x", "y"}}), c.submit(1, join)}
		if p, b := sum(2, "z"); p.wait().Err != nil || b[0] != 4 {
			t.Errorf("a name that nothing is owed under: %d", b[0])
		}
		p, b := sum(2, "x")
		late, _ := sum(2, "y")
		joins = append(joins, c.submit(2, join))
		if p.done() || late.done() || joins[0].done() {
			t.Fatal("something ended without the part of rank 0")
		}
		c.engines[0].Resolve(1, 2, 0, "x") // which has nothing pending
		c.engines[0].Resolve(2, 0, 0, "x") // another world
		own, _ := sum(0, "y")
		if r := late.wait(); r.Err != nil || own.wait().Err != nil || joins[0].done() || p.done() {
			t.Fatalf("y brought by rank 0: %v, and rank 0 still owes x", r.Err)
		}
		want := byte(4)
		if resolved {
			c.engines[0].Resolve(1, 0, 0, "x")
		} else {
			own, mine := sum(0, "x")
			if want = 5; own.wait().Err != nil || mine[0] != want {
				t.Errorf("rank 0 has %d", mine[0])
			}
		}
		if r := p.wait(); r.Err != nil || b[0] != want {
			t.Errorf("sum %d, want %d, error %v", b[0], want, r.Err)
		}
		lastToJoin(2, joins)
	}
}

// TestJoinRefuses: other operations than allreduce need all ranks; the error reads as Horovod's.
func TestJoinRefuses(t *testing.T) {
	for _, l := range []layout{even(1, 2), even(2, 1), even(2, 2)} {
		c := newCluster(t, l, 5, collective.Config{})
		last := l.size() - 1
		var joins []*promise
		for rank := range last {
			joins = append(joins, c.submit(rank, join))
		}
		for kind, what := range map[collective.Kind]string{collective.Allgather: "allgather", collective.Broadcast: "broadcast",
			collective.Alltoall: "alltoall", collective.ReduceScatter: "reducescatter"} {
			b := make([]byte, 4)
			r := collective.Request{Kind: kind, Name: "x", Type: kernel.Uint8, Op: kernel.Sum, Shape: []int{4}, In: b, Out: b}
			if _, err := c.do(last, r); err == nil || !strings.HasPrefix(err.Error(), what+" is not supported with Join at this time") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := c.do(last, barrier); err != nil {
			t.Errorf("barrier: %v", err)
		}
		lastToJoin(last, append(joins, c.submit(last, join)))
	}
}

// TestJoinNextRound: a host that is in the next round already is not answered for ranks that another host still
// takes for joined.
func TestJoinNextRound(t *testing.T) {
	c := newCluster(t, even(3, 1), 9, collective.Config{})
	// Host 2 hears nothing of host 3's join, so host 1 is ahead.
	c.mesh.setHold(func(from, to int, h link.Header) bool { return from == 2 && to == 1 })
	joins := c.everywhere(join)
	joins[0].wait()
	joins[2].wait()
	out := []byte{1, 1, 1}
	var sums []*promise
	for _, rank := range []int{0, 2} {
		sums = append(sums, c.submit(rank, sumIn(0, "x", out[rank:rank+1])))
	}
	must.Soon(t, "host 2 knows of the sum", func() bool { return len(c.engines[1].Pending(epochStart)) == 2 })
	if sums[0].done() || sums[1].done() {
		t.Fatal("the sum ended without rank 1")
	}
	c.mesh.setHold(nil)
	joins[1].wait()
	ended(append(sums, c.submit(1, sumIn(0, "x", out[1:2])))...)
	if !slices.Equal(out, []byte{3, 3, 3}) {
		t.Errorf("sums %d", out)
	}
}
