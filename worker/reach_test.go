package worker

import "testing"

// TestAround: in the course of its steps every host meets every other once, and both ends of a link meet at the same
// step.
func TestAround(t *testing.T) {
	for n := 2; n < 12; n++ {
		var order []int
		for i := range n {
			order = append(order, 100-i)
		}
		met := map[[2]int]int{}
		for _, self := range order {
			seen := map[int]bool{self: true}
			for steps := 1; steps <= n/2; steps++ {
				for _, peer := range around(order, self, steps) {
					if seen[peer] {
						t.Errorf("%d hosts: host %d meets host %d twice", n, self, peer)
					}
					seen[peer] = true
					if former, ok := met[[2]int{peer, self}]; ok && former != steps {
						t.Errorf("%d hosts: %d and %d meet at steps %d and %d", n, self, peer, former, steps)
					}
					met[[2]int{self, peer}] = steps
				}
			}
			if len(seen) != n {
				t.Errorf("%d hosts: host %d meets %d", n, self, len(seen)-1)
			}
		}
	}
}
