package topology

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSearchIsClose compares the search with the exact solver where both can be had: its slowest edge is nearly as fast.
func TestSearchIsClose(t *testing.T) {
	mean, count := 0.0, 0
	for _, cluster := range []func(*rand.Rand, int) ([]Host, []Edge){simulated, scattered} {
		for seed := range uint64(30) {
			hosts, edges := cluster(rand.New(rand.NewPCG(seed, 2)), 6+int(seed)%7)
			p := newProblem(hosts, edges)
			mean += math.Log(p.slowest(p.solveMany()) / p.slowest(p.solve()))
			count++
		}
	}
	if mean = math.Exp(mean / float64(count)); mean < 0.95 || mean > 1.01 {
		t.Errorf("the slowest edge is %.3f times as fast as it can be", mean)
	}
}

// TestSumIsClose: the search that stands for PCCL in the comparison of rings, where there are too many hosts to find
// the least sum, comes close to it where it can be found.
func TestSumIsClose(t *testing.T) {
	mean, count := 0.0, 0
	for _, cluster := range []func(*rand.Rand, int) ([]Host, []Edge){simulated, scattered} {
		for seed := range uint64(10) {
			hosts, edges := cluster(rand.New(rand.NewPCG(seed, 3)), 10+int(seed)%3)
			p := newProblem(hosts, edges).sums()
			best, _ := p.exact(0)
			found, _ := newSearch(p).ring(0)
			mean += math.Log(float64(p.sum(found)) / float64(p.sum(best)))
			count++
		}
	}
	mean = math.Exp(mean / float64(count))
	t.Logf("the sum is %.3f times the least", mean)
	if mean < 1 || mean > 1.1 {
		t.Errorf("the sum is %.3f times the least, in the mean of %d clusters", mean, count)
	}
}

func (p *problem) sum(order []int) (sum int64) {
	for i, from := range order {
		sum += p.edges[from*p.n+order[(i+1)%p.n]].cost
	}
	return sum
}

// TestBoundsSeeRacks: that every host has fast ways to some others is no reason to hope for a ring of these where no
// way out of a rack is as fast.
func TestBoundsSeeRacks(t *testing.T) {
	const n, inside, across = 16, 20.0, 10.0
	p := &problem{ctx: t.Context(), n: n, edges: make([]edge, n*n)}
	for i := range n {
		for j := range n {
			p.edges[i*n+j].speed = across
			if i/4 == j/4 {
				p.edges[i*n+j].speed = inside
			}
		}
	}
	if lowest, top := p.bounds(); lowest != across || top != across {
		t.Errorf("between %v and %v, should be %v", lowest, top, across)
	}
}

// countdown is a context that is over once it has been asked so often.
type countdown struct {
	context.Context
	left, after int
}

func (c *countdown) Err() error {
	if c.left--; c.left >= 0 {
		return nil
	}
	c.after++
	return context.Canceled
}

// TestSearchEnds: whenever the answer is not wanted any more, a search ends without looking further, and with a ring of
// all hosts.
func TestSearchEnds(t *testing.T) {
	const n = 120
	hosts, edges := scattered(rand.New(rand.NewPCG(3, 3)), n)
	search := func(ctx context.Context) []int { return OrderBy(ctx, ByMeasured, hosts, edges).Order }
	whole := countdown{t.Context(), math.MaxInt, 0}
	search(&whole)
	asked := math.MaxInt - whole.left
	if asked < 10 {
		t.Fatalf("asked only %d times whether to go on", asked)
	}
	for left := 0; left < asked; left += asked/40 + 1 {
		ctx := countdown{t.Context(), left, 0}
		order := search(&ctx)
		slices.Sort(order)
		for i, host := range order {
			if i != host || len(order) != n {
				t.Fatalf("over after %d of %d: %v", left, asked, order)
			}
		}
		if ctx.after > 30 { // once for each ring that would have been looked for, none of which is
			t.Errorf("over after %d of %d: went on %d times", left, asked, ctx.after)
		}
	}
}
