package schedule_test

import (
	"math/rand/v2"
	"testing"

	"gorun/collective/schedule"
)

// courses are up to three rings in random orders, with random shares.
func courses(seed uint64, hosts int) []schedule.Course {
	rng := rand.New(rand.NewPCG(seed, uint64(hosts)))
	var out []schedule.Course
	for range 1 + rng.IntN(3) {
		out = append(out, schedule.Course{Order: rng.Perm(hosts), Share: 1 + rng.IntN(1000)})
	}
	return out
}

// Whatever the order of messages of several rings is, every part is in every unit of the result once.
func TestRings(t *testing.T) {
	each(t, func(t *testing.T, seed uint64, hosts int, size int64) {
		c := courses(seed, hosts)
		w := newWorld(t, seed, hosts, size,
			func(p int) []schedule.Step { return schedule.Rings(nil, c, p, size) },
			func(p, _ int) sums { return sums{p: 1} })
		w.run()
		w.once(hosts)
	})
}

// Each ring goes about its share, along its own order.
func TestRingsShares(t *testing.T) {
	const hosts, size = 4, int64(1 << 20)
	c := []schedule.Course{{Order: []int{0, 2, 1, 3}, Share: 750}, {Order: []int{3, 0, 1, 2}, Share: 250}}
	sent := map[uint8]int64{}
	for _, s := range schedule.Rings(nil, c, 0, size) {
		if s.Do.Sends() {
			sent[s.Ring] += s.Hi - s.Lo
			if want := map[uint8]int{1: 2, 2: 1}[s.Ring]; s.Peer != want {
				t.Errorf("ring %d: position 0 sends to %d, should be %d", s.Ring, s.Peer, want)
			}
		}
		if s.Lo%schedule.Align != 0 {
			t.Errorf("chunk starts at %d", s.Lo)
		}
	}
	if all := 2 * (hosts - 1) * size / hosts; sent[1] != all*3/4 || sent[2] != all/4 {
		t.Errorf("position 0 sends %v bytes, should be 3/4 and 1/4 of %d", sent, all)
	}
}
