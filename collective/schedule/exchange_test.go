package schedule_test

import (
	"math/rand/v2"
	"testing"

	"gorun/collective/schedule"
)

// Every piece has one sending and one receiving step that find each other.
func TestExchange(t *testing.T) {
	for hosts := 1; hosts <= 6; hosts++ {
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 3))
			owners := rng.Perm(hosts) // each has a rank at least
			for range rng.IntN(10) {
				owners = append(owners, rng.IntN(hosts))
			}
			owned := make([][]int, hosts)
			for rank, p := range owners {
				owned[p] = append(owned[p], rank)
			}
			type pair struct{ from, to int }
			lists := make([][]schedule.Step, hosts)
			pairs := make([][]pair, hosts)
			for p := range hosts {
				lists[p] = schedule.Exchange(nil, p, owned, func(from, to int) int64 {
					pairs[p] = append(pairs[p], pair{from, to})
					return int64(100*from + to)
				})
				if len(lists[p]) != len(pairs[p]) {
					t.Fatalf("%d steps, %d pieces", len(lists[p]), len(pairs[p]))
				}
			}
			met := map[pair]int{}
			for p, list := range lists {
				for i, s := range list {
					if !s.Do.Sends() {
						continue
					}
					there := lists[s.Peer][s.Tag]
					if there.Do != schedule.Take || there.Peer != p || there.Hi != s.Hi || pairs[s.Peer][s.Tag] != pairs[p][i] {
						t.Fatalf("owners %v: %+v of %v meets %+v of %v", owners, s, pairs[p][i], there, pairs[s.Peer][s.Tag])
					}
					met[pairs[p][i]]++
				}
			}
			for from, p := range owners {
				for to, q := range owners {
					if n := met[pair{from, to}]; p != q && n != 1 || p == q && n != 0 {
						t.Fatalf("owners %v: the piece from %d to %d is sent %d times", owners, from, to, n)
					}
				}
			}
		}
	}
}
