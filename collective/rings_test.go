package collective_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/schedule"
	"gorun/contrib/must"
)

// ringed gives the engines of a cluster rings in random orders, and returns what data segments were meant for.
func ringed(t *testing.T, c *cluster, seed uint64) (rails func() map[int]int) {
	t.Helper()
	var hosts []collective.HostRanks
	for i, ranks := range c.layout {
		hosts = append(hosts, collective.HostRanks{ID: i, Name: fmt.Sprintf("host%d", i+1), Ranks: ranks})
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	var rings []collective.ParallelRing
	for range 2 {
		rings = append(rings, collective.ParallelRing{Order: rng.Perm(len(hosts)), Share: 1 + rng.IntN(3)})
	}
	for i, e := range c.engines {
		must.Do(t, e.SetWorld(collective.EngineWorld{Epoch: 1, Hosts: hosts, Self: i, Size: c.layout.size(), Rings: rings}))
	}
	return func() map[int]int {
		c.mesh.mu.Lock()
		defer c.mesh.mu.Unlock()
		return maps.Clone(c.mesh.rails)
	}
}

// Sums that go over several rings are right, with the same bits everywhere, coded or not, between all ranks and in
// process sets, before and after the rings give way to another one.
func TestRings(t *testing.T) {
	for _, coding := range []kernel.Coding{kernel.CodingNone, kernel.CodingBFloat16} {
		for hosts := 3; hosts <= 5; hosts++ {
			t.Run(fmt.Sprintf("%d/%s", hosts, coding), func(t *testing.T) {
				c := newCluster(t, mixed(hosts), uint64(hosts), collective.Config{Segment: 2 << 10, RingPart: 4 << 10, Algorithm: schedule.ByRing})
				rails := ringed(t, c, uint64(hosts))
				const n = 25_000
				check := func(name string) {
					t.Helper()
					outs := make([][]byte, c.layout.size())
					var promises []*promise
					for rank := range outs {
						v := make([]complex128, n)
						for i := range v {
							v[i] = complex(float64((i+rank)%7), 0)
						}
						outs[rank] = encode(kernel.Float32, v)
						promises = append(promises, c.submit(rank, collective.Request{Kind: collective.Allreduce, Name: name,
							Type: kernel.Float32, Op: kernel.Sum, Coding: coding, Shape: []int{n}, In: outs[rank], Out: outs[rank]}))
					}
					want := make([]complex128, n)
					for i := range want {
						for rank := range outs {
							want[i] += complex(float64((i+rank)%7), 0)
						}
					}
					for rank, p := range promises {
						if r := p.wait(); r.Err != nil {
							t.Fatal(r.Err)
						}
						if !bytes.Equal(outs[rank], encode(kernel.Float32, want)) {
							t.Fatalf("%s: rank %d has another sum", name, rank)
						}
					}
				}
				check("over two rings")
				if seen := rails(); seen[1] == 0 || seen[2] == 0 || seen[0] > 0 {
					t.Errorf("segments by network: %v", seen)
				}

				quiet := make(chan struct{}, hosts)
				for _, e := range c.engines {
					e.Pause(7, func() { quiet <- struct{}{} })
				}
				for range hosts {
					<-quiet
				}
				order := rand.New(rand.NewPCG(uint64(hosts), 4)).Perm(hosts)
				for _, e := range c.engines {
					must.Do(t, e.Resume(7, order))
				}
				check("over one ring")
				if seen := rails(); seen[0] == 0 {
					t.Errorf("segments by network after the change: %v", seen)
				}
			})
		}
	}
}

// A world is refused whose rings are no orders of its hosts.
func TestRingsChecked(t *testing.T) {
	c := newCluster(t, even(3, 1), 1, collective.Config{})
	for _, r := range []collective.ParallelRing{{Order: []int{0, 1}, Share: 1}, {Order: []int{0, 1, 1}, Share: 1}, {Order: []int{0, 1, 3}, Share: 1},
		{Order: []int{0, 1, 2}}, {Order: []int{0, 1, 2}, Share: collective.MaxShare + 1}} {
		var hosts []collective.HostRanks
		for i, ranks := range c.layout {
			hosts = append(hosts, collective.HostRanks{ID: i, Ranks: ranks})
		}
		w := collective.EngineWorld{Epoch: 2, Hosts: hosts, Size: 3, Rings: []collective.ParallelRing{{Order: []int{2, 0, 1}, Share: 5}, r}}
		if err := c.engines[0].SetWorld(w); err == nil {
			t.Errorf("a world with the ring %+v was taken", r)
		}
		w.Rings = slices.Repeat(w.Rings[:1], collective.MaxRings+1)
		if err := c.engines[0].SetWorld(w); err == nil {
			t.Errorf("a world with %d rings was taken", len(w.Rings))
		}
	}
}
