package collective_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/contrib/must"
)

// pauseAll stops all engines and returns when all are quiet.
func (c *cluster) pauseAll(number uint32) {
	c.t.Helper()
	var quiet atomic.Int32
	for _, e := range c.engines {
		e.Pause(number, func() { quiet.Add(1) })
	}
	must.Soon(c.t, "all hosts are quiet", func() bool { return int(quiet.Load()) == len(c.engines) })
}

// resumeAll lets all engines go on, one after the other, in another order of the hosts if there is one.
func (c *cluster) resumeAll(number uint32, order []int, hosts []int) {
	c.t.Helper()
	for _, host := range hosts {
		must.Do(c.t, c.engines[host].Resume(number, order))
	}
}

// sum is an allreduce of whole numbers, so that no order of adding matters.
func sum(name string, group uint32, rank, elements int) (collective.Request, []byte) {
	in, out := make([]byte, 4*elements), make([]byte, 4*elements)
	for i := range elements {
		binary.LittleEndian.PutUint32(in[4*i:], math.Float32bits(float32(rank+i%7)))
	}
	return collective.Request{Kind: collective.Allreduce, Name: name, Group: group, Type: kernel.Float32, Op: kernel.Sum, Shape: []int{elements}, In: in, Out: out}, out
}

func checkSum(t *testing.T, name string, out []byte, ranks []int) {
	t.Helper()
	for i := range len(out) / 4 {
		want := float32(0)
		for _, r := range ranks {
			want += float32(r + i%7)
		}
		if got := math.Float32frombits(binary.LittleEndian.Uint32(out[4*i:])); got != want {
			t.Fatalf("%s: element %d is %v, want %v", name, i, got, want)
		}
	}
}

// TestPauseAtOneBoundary: what was announced by all hosts ends, what was not waits, whichever rank submits it
// meanwhile.
func TestPauseAtOneBoundary(t *testing.T) {
	c := newCluster(t, even(3, 2), 1, collective.Config{})
	sums := func(name string, ranks ...int) (all []*promise) {
		for _, r := range ranks {
			req, _ := sum(name, 0, r, 50_000)
			all = append(all, c.submit(r, req))
		}
		return all
	}
	before := sums("before", 0, 1, 2, 3, 4, 5)
	half := sums("half", 0, 1, 2) // announced by host1 only
	c.pauseAll(1)
	ended(before...)
	c.mesh.setHold(func(_, _ int, h link.Header) bool {
		if h.Kind == link.Data {
			t.Errorf("a segment is sent in the pause: %+v", h)
		}
		return false
	})
	half = append(half, sums("half", 3, 4, 5)...)
	after := sums("after", 0, 1, 2, 3, 4, 5)
	c.pauseAll(1) // again: nothing is under way, as before
	for _, p := range slices.Concat(half, after) {
		if p.done() {
			t.Errorf("%s ended in the pause", p.what)
		}
	}
	c.mesh.setHold(nil)
	c.resumeAll(1, []int{2, 0, 1}, []int{0, 1, 2})
	ended(slices.Concat(half, after)...)
}

// TestRingChanges: operations of every size go on while the ring changes again and again, on groups too, with
// segments in any order and hosts that resume one after the other.
func TestRingChanges(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 11))
			hosts := 3 + int(seed)%3
			l := even(hosts, 1+int(seed)%2)
			c := newCluster(t, l, seed, collective.Config{Segment: 4096})
			everybody := make([]int, l.size())
			for r := range everybody {
				everybody[r] = r
			}
			some := []int{0, l.size() - 1}
			var made []*promise
			for _, r := range everybody {
				made = append(made, c.submit(r, collective.Request{Kind: collective.AddGroup, Name: "group", Shape: some}))
			}
			group := uint32(made[0].wait().Rows[0])
			for _, p := range made {
				p.wait()
			}
			sizes := []int{1, 100, 3000, 10_000}
			var done atomic.Bool
			var working sync.WaitGroup
			var rounds atomic.Int32
			for _, r := range everybody {
				working.Go(func() {
					own := rand.New(rand.NewPCG(seed, uint64(r)))
					for round := 0; round < 1000; round++ {
						type part struct {
							name  string
							out   []byte
							ranks []int
							p     *promise
						}
						var parts []part
						for k, size := range sizes {
							name := fmt.Sprintf("s%d-%d", k, round%3)
							req, out := sum(name, 0, r, size)
							parts = append(parts, part{name, out, everybody, c.submit(r, req)})
							if slices.Contains(some, r) && k%2 == 0 {
								req, out := sum(name, group, r, size)
								parts = append(parts, part{name, out, some, c.submit(r, req)})
							}
						}
						for _, k := range own.Perm(len(parts)) {
							if res := parts[k].p.wait(); res.Err != nil {
								t.Errorf("%s of rank %d: %v", parts[k].name, r, res.Err)
								return
							}
							checkSum(t, parts[k].name, parts[k].out, parts[k].ranks)
						}
						// Rank 0 decides whether there is another round.
						flag := make([]byte, 4)
						if r == 0 && done.Load() {
							flag[0] = 1
						}
						b := c.submit(r, collective.Request{Kind: collective.Broadcast, Name: "flag", Type: kernel.Int32, Shape: []int{1}, In: flag, Out: flag})
						if res := b.wait(); res.Err != nil {
							t.Errorf("flag of rank %d: %v", r, res.Err)
							return
						}
						if r == 0 {
							rounds.Add(1)
						}
						if flag[0] == 1 {
							return
						}
					}
				})
			}
			for number := range uint32(8) {
				seen := rounds.Load()
				c.pauseAll(number + 1)
				var order []int
				if number%3 != 2 {
					order = rng.Perm(hosts)
				}
				c.resumeAll(number+1, order, rng.Perm(hosts))
				must.Soon(t, "the ranks go on", func() bool { return rounds.Load() > seen+1 || t.Failed() })
			}
			done.Store(true)
			working.Wait()
			t.Logf("%d rounds on %d hosts", rounds.Load(), hosts)
		})
	}
}

// TestResumeChecksOrder: what is no order of the hosts is refused, and a late word changes nothing.
func TestResumeChecksOrder(t *testing.T) {
	c := newCluster(t, even(2, 1), 3, collective.Config{})
	c.pauseAll(4)
	for _, order := range [][]int{{0}, {0, 0}, {0, 2}, {0, 1, 1}} {
		if err := c.engines[0].Resume(4, order); err == nil {
			t.Errorf("%v is taken", order)
		}
	}
	if err := c.engines[0].Resume(3, []int{7}); err != nil {
		t.Errorf("a pause that is over: %v", err)
	}
	c.resumeAll(4, []int{1, 0}, []int{1, 0})
}

// TestLeaveInPause: a rank that submits its part and leaves, all in a pause, has submitted it.
func TestLeaveInPause(t *testing.T) {
	c := newCluster(t, even(3, 1), 4, collective.Config{})
	c.pauseAll(1)
	var all []*promise
	for r := range 3 {
		req, _ := sum("last", 0, r, 10_000)
		all = append(all, c.submit(r, req))
	}
	c.engines[1].Leave(1, 1)
	req, _ := sum("more", 0, 0, 10)
	more := c.submit(0, req)
	c.resumeAll(1, []int{1, 2, 0}, []int{2, 1, 0})
	ended(all...)
	if r := more.wait(); r.Err == nil {
		t.Error("an operation without the rank that left succeeds")
	}
}
