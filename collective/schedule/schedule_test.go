package schedule_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"gorun/collective/schedule"
)

// sums counts, for one unit of the buffer, how often each position's contribution is in it.
type sums map[int]int

// position carries out one list symbolically: it keeps for each unit what was added up so far.
type position struct {
	steps []schedule.Step
	done  []bool
	here  []bool         // receives that wait for the step that they come after
	busy  []int          // messages under way that hold this unit of acc
	acc   []sums         // partial or result
	final []bool         // acc holds the result
	parts map[int][]sums // Collect: what came from which host
	own   func(unit int) sums
}

type message struct {
	from, to int
	step     schedule.Step
	data     []sums
}

type world struct {
	t *testing.T
	// copies is set if a message no longer needs the sender's memory.
	copies bool
	rng    *rand.Rand
	at     []*position
	wires  []message
}

const unit = schedule.Align

func newWorld(t *testing.T, seed uint64, hosts int, size int64, list func(p int) []schedule.Step, own func(p, unit int) sums) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1))}
	for p := range hosts {
		s := list(p)
		n := int((size + unit - 1) / unit)
		at := &position{steps: s, done: make([]bool, len(s)), here: make([]bool, len(s)), busy: make([]int, n), acc: make([]sums, n), final: make([]bool, n),
			parts: map[int][]sums{}, own: func(u int) sums { return own(p, u) }}
		w.at = append(w.at, at)
	}
	return w
}

// run sends what may be sent and delivers what is under way in random order until nothing moves.
func (w *world) run() {
	w.t.Helper()
	for {
		for p := range w.at {
			w.send(p)
		}
		if len(w.wires) == 0 {
			break
		}
		i := w.rng.IntN(len(w.wires))
		m := w.wires[i]
		w.wires = append(w.wires[:i], w.wires[i+1:]...)
		w.deliver(m)
	}
	for p, at := range w.at {
		for i, done := range at.done {
			if !done {
				w.t.Fatalf("position %d: step %d never happened: %+v", p, i, at.steps[i])
			}
		}
	}
}

func (w *world) send(p int) {
	at := w.at[p]
	for i, s := range at.steps {
		if !s.Do.Sends() || at.done[i] || s.After >= 0 && !at.done[s.After] {
			continue
		}
		if s.After >= 0 {
			if s.After >= i {
				w.t.Fatalf("position %d: step %d %+v comes after a later one", p, i, s)
			}
		}
		at.done[i] = true
		m := message{from: p, to: s.Peer, step: s}
		for u := int(s.Lo / unit); int64(u)*unit < s.Hi; u++ {
			if s.Do == schedule.Contribute {
				if at.acc[u] != nil {
					w.t.Fatalf("position %d makes its part of unit %d twice or too late", p, u)
				}
				at.acc[u] = at.own(u)
			}
			m.data = append(m.data, maps.Clone(at.acc[u]))
			at.busy[u]++
		}
		w.wires = append(w.wires, m)
		if s.Do == schedule.Contribute {
			w.finish(p, i)
		}
	}
}

func (w *world) deliver(m message) {
	w.t.Helper()
	at := w.at[m.to]
	if int(m.step.Tag) >= len(at.steps) {
		w.t.Fatalf("position %d gets tag %d of %d steps", m.to, m.step.Tag, len(at.steps))
	}
	s := at.steps[m.step.Tag]
	if s.Do.Sends() || s.Peer != m.from || s.Lo != m.step.Lo || s.Hi != m.step.Hi || at.done[m.step.Tag] {
		w.t.Fatalf("position %d: %+v from %d meets %+v, done %v", m.to, m.step, m.from, s, at.done[m.step.Tag])
	}
	for u := int(s.Lo / unit); int64(u)*unit < s.Hi; u++ {
		w.at[m.from].busy[u]--
	}
	w.take(m.to, int(m.step.Tag), m.data)
}

// take is the receiving end of a message. A merge keeps it until the step that it comes after is done.
func (w *world) take(p, step int, message []sums) {
	w.t.Helper()
	at := w.at[p]
	s := at.steps[step]
	early := s.After >= 0 && !at.done[s.After]
	merges := s.Do == schedule.Merge || s.Do == schedule.Conclude
	if s.After >= step {
		w.t.Fatalf("position %d: step %d %+v comes after a later one", p, step, s)
	}
	if early && merges {
		at.here[step] = true
		at.parts[step] = message
		return
	}
	if s.Do == schedule.Collect {
		at.parts[s.Peer] = message
		at.done[step] = true
		return
	}
	for i, data := range message {
		u := int(s.Lo/unit) + i
		if at.final[u] {
			w.t.Fatalf("position %d: unit %d arrives after its result", p, u)
		}
		if at.busy[u] > 0 && !w.copies {
			w.t.Fatalf("position %d: unit %d is written while it is being sent", p, u)
		}
		add := at.own(u)
		if merges {
			add = at.acc[u]
		}
		if s.Do != schedule.Take {
			for q, n := range add {
				data[q] += n
			}
		}
		at.acc[u] = data
		at.final[u] = s.Do != schedule.Add && s.Do != schedule.Merge
	}
	if early {
		at.here[step] = true
		return
	}
	w.finish(p, step)
}

// finish marks a step as done, after which what waited for it happens: sends first.
func (w *world) finish(p, step int) {
	w.t.Helper()
	at := w.at[p]
	at.done[step] = true
	w.send(p)
	for i, s := range at.steps {
		if s.After != step || !at.here[i] || s.Do.Sends() {
			continue
		}
		at.here[i] = false
		if s.Do == schedule.Take {
			w.finish(p, i)
		} else {
			w.take(p, i, at.parts[i])
		}
	}
}

var sizes = []int64{0, 1, 63, 64, 65, 500, 4096, 10_000}

func each(t *testing.T, f func(t *testing.T, seed uint64, hosts int, size int64)) {
	for hosts := 1; hosts <= 9; hosts++ {
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%dhosts/%dB", hosts, size), func(t *testing.T) {
				for seed := range uint64(5) {
					f(t, seed, hosts, size)
				}
			})
		}
	}
}

// once fails unless every unit at every position holds every contribution exactly once.
func (w *world) once(hosts int) {
	w.t.Helper()
	for p, at := range w.at {
		for u, s := range at.acc {
			if hosts == 1 {
				continue
			}
			for q := range hosts {
				if s[q] != 1 {
					w.t.Fatalf("position %d, unit %d: part of %d is in it %d times", p, u, q, s[q])
				}
			}
			if !at.final[u] {
				w.t.Fatalf("position %d, unit %d: not a result", p, u)
			}
		}
	}
}

func TestDirect(t *testing.T) {
	each(t, func(t *testing.T, seed uint64, hosts int, size int64) {
		w := newWorld(t, seed, hosts, size,
			func(p int) []schedule.Step { return schedule.Direct(nil, hosts, p, size) },
			func(p, _ int) sums { return sums{p: 1} })
		w.run()
		for p, at := range w.at {
			if len(at.parts) != hosts-1 {
				t.Fatalf("position %d has the parts of %d others", p, len(at.parts))
			}
			for q, part := range at.parts {
				for u, s := range part {
					if len(s) != 1 || s[q] != 1 {
						t.Fatalf("position %d, unit %d: %v came from %d", p, u, s, q)
					}
				}
			}
		}
	})
}

func TestBroadcast(t *testing.T) {
	type list func([]schedule.Step, int, int, int, int64) []schedule.Step
	for name, list := range map[string]list{"chain": schedule.Chain, "tree": schedule.Tree} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, seed uint64, hosts int, size int64) {
				root := int(seed) % hosts
				w := newWorld(t, seed, hosts, size,
					func(p int) []schedule.Step { return list(nil, hosts, p, root, size) },
					func(p, _ int) sums { return sums{p: 1} })
				w.run()
				for p, at := range w.at {
					for u, s := range at.acc {
						if hosts > 1 && (len(s) != 1 || s[root] != 1) {
							t.Fatalf("position %d, unit %d: %v, root %d", p, u, s, root)
						}
					}
				}
			})
		})
	}
}

func TestGather(t *testing.T) {
	each(t, func(t *testing.T, seed uint64, hosts int, size int64) {
		blocks, owner := randomBlocks(seed, hosts, size)
		w := newWorld(t, seed, hosts, size,
			func(p int) []schedule.Step { return schedule.Gather(nil, hosts, p, blocks) },
			func(p, u int) sums { return sums{p: 1} })
		w.run()
		for p, at := range w.at {
			for u, s := range at.acc {
				if hosts > 1 && (len(s) != 1 || s[owner[u]] != 1) {
					t.Fatalf("position %d, unit %d: %v, owner %d", p, u, s, owner[u])
				}
			}
		}
	})
}

func TestCostCrossings(t *testing.T) {
	c := schedule.Cost{Alpha: 30e-6, Beta: 1 / 1.25e9}
	for hosts := 3; hosts <= 64; hosts++ {
		if c.Direct(1<<10, hosts) > c.Ring(1<<10, hosts) {
			t.Errorf("%d hosts: a ring for 1 KiB", hosts)
		}
		if c.Direct(64<<20, hosts) < c.Ring(64<<20, hosts) {
			t.Errorf("%d hosts: a direct exchange for 64 MiB", hosts)
		}
		if c.Tree(64<<20, hosts) < c.Chain(64<<20, 512<<10, hosts) {
			t.Errorf("%d hosts: a tree for 64 MiB", hosts)
		}
	}
	for name, cost := range map[string]float64{"ring": c.Ring(1, 1), "direct": c.Direct(1, 1), "chain": c.Chain(1, 1, 1),
		"tree": c.Tree(1, 1)} {
		if cost != 0 {
			t.Errorf("%s: one host alone takes %g s", name, cost)
		}
	}
}
