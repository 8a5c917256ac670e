package schedule_test

import (
	"math/rand/v2"
	"testing"

	"gorun/collective/schedule"
)

// randomBlocks cuts a buffer into blocks of whole units; some owners have several, some none.
func randomBlocks(seed uint64, hosts int, size int64) (blocks []schedule.Block, owner map[int]int) {
	rng := rand.New(rand.NewPCG(seed, 2))
	owner = map[int]int{}
	for lo := int64(0); lo < size; {
		hi := min(size, lo+unit*rng.Int64N(20))
		b := schedule.Block{Owner: rng.IntN(hosts), Lo: lo, Hi: hi}
		for u := lo / unit; u*unit < hi; u++ {
			owner[int(u)] = b.Owner
		}
		blocks = append(blocks, b)
		lo = hi
	}
	return blocks, owner
}

func TestScatter(t *testing.T) {
	each(t, func(t *testing.T, seed uint64, hosts int, size int64) {
		blocks, owner := randomBlocks(seed, hosts, size)
		w := newWorld(t, seed, hosts, size,
			func(p int) []schedule.Step { return schedule.Scatter(nil, hosts, p, blocks) },
			func(p, u int) sums { return sums{p: 1} })
		w.run()
		if hosts == 1 {
			return
		}
		for u, p := range owner {
			s := w.at[p].acc[u]
			for q := range hosts {
				if s[q] != 1 || !w.at[p].final[u] {
					t.Fatalf("unit %d at its owner %d: %v", u, p, s)
				}
			}
		}
	})
}
