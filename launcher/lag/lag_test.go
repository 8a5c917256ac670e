package lag_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"gorun/launcher/lag"
)

// sim is a job whose steps take as long as those of real ones vary. Whatever happens comes from one seed.
type sim struct {
	rng   *rand.Rand
	ranks []lag.Rank
	links []lag.Link
	base  []float64 // own time of a step, in microseconds
	steps int
	// What goes wrong with rank 1, and the speed of the link from the host of rank 2.
	data, stolen, computing, speed float64
}

func newSim(seed uint64) *sim {
	s := &sim{rng: rand.New(rand.NewPCG(seed, 1)), speed: 1}
	n := 2 + s.rng.IntN(15)
	own := 1e4 + 5e5*s.rng.Float64()
	for i := range n {
		s.ranks = append(s.ranks, lag.Rank{Number: i, Host: fmt.Sprint("host", i)})
		s.links = append(s.links, lag.Link{From: fmt.Sprint("host", i), To: fmt.Sprint("host", (i+1)%n)})
		s.base = append(s.base, own*(1+0.03*s.rng.NormFloat64()))
	}
	return s
}

// step lets all ranks take one step: they compute and load data, wait for the slowest, and for the sum.
func (s *sim) step() {
	s.steps++
	own, data, stolen, longest := make([]float64, len(s.ranks)), make([]float64, len(s.ranks)), make([]float64, len(s.ranks)), 0.0
	for i, base := range s.base {
		own[i] = base * max(0.5, 1+0.1*s.rng.NormFloat64())
		data[i] = 0.02 * base * s.rng.ExpFloat64()
		stolen[i] = 0.01 * base * s.rng.ExpFloat64()
		if s.rng.IntN(200) == 0 { // a collection of garbage, a page that was swapped
			own[i] *= 3
		}
		if i == 0 && s.steps%500 == 0 { // a checkpoint
			own[i] += 30 * base
		}
		if i == 1 {
			data[i] += s.data * base
			stolen[i] += s.stolen * base
			own[i] += s.computing * base
		}
		own[i] += data[i] + stolen[i]
		longest = max(longest, own[i])
	}
	sum := 0.4 * s.base[0] * (1 + 0.2*s.rng.ExpFloat64()) / min(s.speed, 1)
	for i := range s.ranks {
		r := &s.ranks[i]
		r.Steps++
		r.Elapsed += int64(longest + sum)
		r.Data += int64(data[i])
		r.Stolen += int64(stolen[i])
		r.Others += int64(longest - own[i])
		r.Communication += int64(sum)
		speed := 1e3 * max(0.3, 1+0.15*s.rng.NormFloat64())
		if i == 2 {
			speed *= s.speed
		}
		s.links[i].Bytes += 1e7
		s.links[i].Busy += int64(1e7 / speed)
	}
}

// run takes steps, and looks after each few of them.
func (s *sim) run(d *lag.Detector, steps int) (changes []lag.Change) {
	for range steps {
		if s.step(); s.steps%5 == 0 {
			changes = append(changes, d.Take(1, s.ranks, s.links)...)
		}
	}
	return changes
}

// TestQuiet: in 10,000 steps in which nothing is wrong, nothing is told.
func TestQuiet(t *testing.T) {
	for seed := range uint64(20) {
		var d lag.Detector
		if told := newSim(seed).run(&d, 10000); len(told) > 0 {
			t.Errorf("seed %d: %+v", seed, told)
		}
	}
}

// TestLags: what slows a job down is told within 50 steps, once, with its cause, and so is its end.
func TestLags(t *testing.T) {
	for name, tc := range map[string]struct {
		wrong func(*sim)
		right func(*sim)
		cause lag.Cause
	}{
		"stopped for 30 % of the time": {func(s *sim) { s.computing = 0.3 / 0.7 }, func(s *sim) { s.computing = 0 }, lag.Computing},
		"waits for data":               {func(s *sim) { s.data = 0.5 }, func(s *sim) { s.data = 0 }, lag.Data},
		"CPUs are stolen":              {func(s *sim) { s.stolen = 0.5 }, func(s *sim) { s.stolen = 0 }, lag.Stolen},
		"a link is slow":               {func(s *sim) { s.speed = 0.1 }, func(s *sim) { s.speed = 1 }, lag.Carrying},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(200) {
				var d lag.Detector
				s := newSim(seed)
				if tc.cause == lag.Carrying && len(s.ranks) < 3 {
					continue // which of two is slow?
				}
				told := s.run(&d, 100+s.rng.IntN(100))
				tc.wrong(s)
				told = append(told, s.run(&d, 50)...)
				if len(told) != 1 || told[0].Cause != tc.cause || told[0].Over || (told[0].Rank == 1) != (tc.cause != lag.Carrying) || tc.cause == lag.Carrying && told[0].Host != "host2" {
					t.Fatalf("seed %d: %+v", seed, told)
				}
				if c := told[0]; c.Cause != lag.Carrying && (c.Own <= c.Usual || c.Usual < time.Millisecond) {
					t.Errorf("seed %d: %v and %v", seed, c.Own, c.Usual)
				}
				if again := s.run(&d, 500); len(again) > 0 {
					t.Fatalf("seed %d: %+v again", seed, again)
				}
				tc.right(s)
				if over := s.run(&d, 300); len(over) != 1 || !over[0].Over {
					t.Fatalf("seed %d: %+v, and it is over", seed, over)
				}
			}
		})
	}
}

// TestKnown: what lags is told once, whatever worlds follow and whatever disturbs all ranks, and its end is told.
func TestKnown(t *testing.T) {
	var d lag.Detector
	s := newSim(3)
	s.computing = 1
	told := 0
	for epoch := range uint32(10) {
		for range 20 {
			for range 5 {
				s.step()
			}
			told += len(d.Take(epoch, s.ranks, s.links))
		}
		s.ranks[0].Elapsed += 1e8
		d.Drop()
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	s.computing = 0
	over := 0
	for range 60 {
		for range 5 {
			s.step()
		}
		for _, c := range d.Take(10, s.ranks, s.links) {
			over++
			if !c.Over || c.Rank != 1 {
				t.Errorf("then %+v", c)
			}
		}
	}
	if over != 1 {
		t.Errorf("its end is told %d times", over)
	}
}

// TestNewWorld: what ranks counted in another world, or other processes, is not compared.
func TestNewWorld(t *testing.T) {
	var d lag.Detector
	s := newSim(3)
	s.computing = 1
	for epoch := range uint32(20) {
		for range 30 {
			s.step()
		}
		if told := d.Take(epoch, s.ranks, s.links); len(told) > 0 {
			t.Fatalf("%+v", told)
		}
	}
	s.ranks[1].Steps, s.ranks[1].Elapsed = 0, 0 // the process has begun anew
	if told := s.run(&d, 30); len(told) > 0 {
		t.Fatalf("%+v", told)
	}
	if told := d.Take(20, nil, nil); told != nil {
		t.Fatalf("%+v", told)
	}
}
