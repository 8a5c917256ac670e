package schedule_test

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"

	"gorun/collective/schedule"
)

// collects reports whether the steps of an algorithm collect contributions rather than combine partial results.
func collects(a schedule.Algorithm) bool {
	return slices.ContainsFunc(schedule.Allreduce(nil, a, 2, 0, 1<<10), func(s schedule.Step) bool { return s.Do == schedule.Collect })
}

// Every algorithm that combines partial results, in worlds of 1 to 33 hosts: each contribution is in every
// unit of every result exactly once, whatever the order of arrival, and no memory changes under a message.
func TestAllreduce(t *testing.T) {
	for _, a := range schedule.Algorithms() {
		if collects(a) {
			continue // TestDirect
		}
		t.Run(a.String(), func(t *testing.T) {
			for hosts := 1; hosts <= 33; hosts++ {
				for _, size := range []int64{1, 65, 700, 2200} {
					fit := a.Fit(hosts, size)
					for seed := range uint64(2) {
						w := newWorld(t, seed, hosts, size,
							func(p int) []schedule.Step { return schedule.Allreduce(nil, fit, hosts, p, size) },
							func(p, _ int) sums { return sums{p: 1} })
						w.copies = fit == schedule.ByRecursiveDoubling
						w.run()
						w.once(hosts)
					}
				}
			}
		})
	}
}

// The time that the formulas give is the time that the steps take; where hosts is no power of two, positions without
// an extra are ahead, and messages meet on a wire. Steps are not cut into
// messages here, which is what recursive doubling pays for.
func TestCostIsWhatStepsTake(t *testing.T) {
	for _, cost := range []schedule.Cost{{Alpha: 30e-6, Beta: 1e-9}, {Alpha: 1e-6, Beta: 1e-8}, {Alpha: 30e-6, Beta: 1e-9, Gap: 2e-6}} {
		for _, a := range schedule.Algorithms() {
			for hosts := 1; hosts <= 33; hosts++ {
				for _, units := range []int64{1, 16, 1024} {
					n := units * int64(hosts) * 32 * schedule.Align // shares of the same size everywhere
					if a == schedule.ByRecursiveDoubling && n > schedule.DoublingSegment {
						continue
					}
					got, want := simulate(cost, a, n, hosts), cost.Allreduce(a, n, hosts)
					powerOfTwo := hosts&(hosts-1) == 0
					uneven := a == schedule.ByRecursiveDoubling || a == schedule.ByRabenseifner
					if uneven && !powerOfTwo && got <= 1.25*want && got > want/2 {
						continue
					}
					if math.Abs(got-want) > 1e-6*want {
						t.Fatalf("%s of %d bytes on %d hosts takes %g s, the formula says %g", a, n, hosts, got, want)
					}
				}
			}
		}
	}
}

// What a position sends in all, and how many messages one after the other there are.
func TestBytesAndSteps(t *testing.T) {
	const size = int64(1 << 20)
	for hosts := 2; hosts <= 32; hosts *= 2 {
		rounds, h := bits.Len(uint(hosts))-1, int64(hosts)
		for _, want := range []struct {
			by       schedule.Algorithm
			messages int
			bytes    int64
		}{
			{schedule.ByRing, 2 * (hosts - 1), 2 * (h - 1) * size / h},
			{schedule.ByDirect, hosts - 1, (h - 1) * size},
			{schedule.ByRecursiveDoubling, rounds, int64(rounds) * size},
			{schedule.ByRabenseifner, 2 * rounds, 2 * (h - 1) * size / h},
		} {
			for p := range hosts {
				var messages int
				var bytes int64
				for _, s := range schedule.Allreduce(nil, want.by, hosts, p, size) {
					if s.Do.Sends() {
						messages, bytes = messages+1, bytes+s.Hi-s.Lo
					}
				}
				if messages != want.messages || bytes != want.bytes {
					t.Errorf("%s, position %d of %d: %d messages of %d bytes, want %d of %d", want.by, p, hosts, messages, bytes, want.messages, want.bytes)
				}
			}
		}
	}
}

// The choice is hardly worse than any algorithm, and small operations take few steps while large ones move
// few bytes.
func TestChoose(t *testing.T) {
	c := schedule.Cost{Alpha: 30e-6, Beta: 0.8e-9, Gap: 3e-6}
	for _, hosts := range []int{2, 3, 4, 8, 33, 256, 4096} {
		for n := int64(4); n <= 1<<32; n *= 4 {
			got := c.Choose(n, hosts, 64<<10)
			for _, a := range schedule.Algorithms() {
				if a == schedule.ByDirect && n > 64<<10 {
					continue
				}
				if c.Allreduce(a, n, hosts) < 0.9*c.Allreduce(got, n, hosts) {
					t.Errorf("%d bytes on %d hosts: %s, but %s is faster", n, hosts, got, a)
				}
			}
		}
		if got := c.Choose(4, hosts, 64<<10); hosts > 64 && got != schedule.ByRecursiveDoubling {
			t.Errorf("4 bytes on %d hosts by %s", hosts, got)
		}
		changes := c.Crossovers(hosts, 64<<10, 1<<32)
		for i, ch := range changes {
			if i > 0 && (ch.From <= changes[i-1].From || ch.By == changes[i-1].By) || c.Choose(max(ch.From, 1), hosts, 64<<10) != ch.By {
				t.Errorf("%d hosts: changes %v", hosts, changes)
			}
		}
	}
}

func TestAlgorithmNames(t *testing.T) {
	for _, a := range append(schedule.Algorithms(), schedule.Auto) {
		if got, err := schedule.ParseAlgorithm(a.String()); err != nil || got != a || !a.Valid() {
			t.Errorf("%s is read as %s, %v", a, got, err)
		}
	}
	if got, err := schedule.ParseAlgorithm(""); err != nil || got != schedule.Auto {
		t.Errorf("nothing is read as %s, %v", got, err)
	}
	if _, err := schedule.ParseAlgorithm("rings"); err == nil {
		t.Error("rings are read")
	}
	if s := schedule.Algorithm(99).String(); s != "algorithm(99)" || schedule.Algorithm(99).Valid() {
		t.Error(s)
	}
}

func TestSlower(t *testing.T) {
	lan, wan := schedule.Cost{Alpha: 1e-5, Beta: 1e-9, Gap: 2e-6}, schedule.Cost{Alpha: 1e-2, Beta: 5e-10}
	want := schedule.Cost{Alpha: 1e-2, Beta: 1e-9, Gap: 2e-6}
	if got := lan.Slower(wan); got != want || wan.Slower(lan) != want {
		t.Errorf("%+v and %+v: %+v", lan, wan, got)
	}
	for _, bad := range []schedule.Cost{{}, {Alpha: -1, Beta: 1}, {Alpha: math.NaN(), Beta: 1e-9}, {Alpha: 1e-5, Beta: math.Inf(1)}, {Alpha: 1e-5, Beta: 1e-9, Gap: -1}} {
		if bad.Sound() || bad.Slower(lan) != lan || lan.Slower(bad) != lan {
			t.Errorf("%+v counts", bad)
		}
	}
}

func ExampleCost_Describe() {
	fmt.Println(schedule.Cost{Alpha: 30e-6, Beta: 0.8e-9, Gap: 3e-6}.Describe(8, 64<<10))
	// Output: a message takes 30 µs, a byte 0.8 ns (1.25 GB/s); allreduce by direct, from 21 KiB by recursive-doubling, from 44 KiB by rabenseifner, from 3 MiB by ring
}
