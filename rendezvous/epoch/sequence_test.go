package epoch_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"gorun/rendezvous/epoch"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// job is a simulation of a launcher that sends rosters whenever it likes, to hosts that crash, are stunned
// and partitioned, over a network that loses, duplicates, delays and reorders; all from one seed.
type job struct {
	t        *testing.T
	rng      *rand.Rand
	machines []*epoch.Machine
	rosters  []epoch.Roster   // by epoch - 1
	pipes    [][]epoch.Roster // from the launcher to each host: in order, nothing lost, any delay
	net      []epoch.Send
	from     []int // senders of net
	prepare  []uint32
	orders   []ordering
	worlds   [][]wire.World // what each host entered
	crashed  []bool
	stunned  []int // steps until a host goes on
	side     []int // of the partition
	faults   bool
}

func newJob(t *testing.T, n int, seed uint64) *job {
	j := &job{t: t, rng: rand.New(rand.NewPCG(seed, 2)), pipes: make([][]epoch.Roster, n), prepare: make([]uint32, n),
		worlds: make([][]wire.World, n), crashed: make([]bool, n), stunned: make([]int, n), side: make([]int, n), faults: true}
	for id := range n {
		j.machines = append(j.machines, epoch.New(epoch.Config{Self: id}))
		j.step(id, epoch.Event{Self: &topology.Host{Name: fmt.Sprint("h", id)}})
	}
	return j
}

func (j *job) step(id int, ev epoch.Event) {
	a, err := j.machines[id].Step(ev)
	if err != nil {
		j.t.Fatalf("host %d: %v", id, err)
	}
	if a.Order != nil {
		j.orders = append(j.orders, ordering{id, *a.Order})
	}
	if a.Prepare != nil {
		j.prepare[id] = a.Prepare.Epoch
	}
	if a.Commit != nil {
		j.worlds[id] = append(j.worlds[id], *a.Commit)
	}
	for _, m := range a.Send {
		copies := 1
		if j.faults {
			copies = j.rng.IntN(3)
		}
		for range copies {
			j.net, j.from = append(j.net, m), append(j.from, id)
		}
	}
}

// roster decides on the next members: any that have not crashed.
func (j *job) roster() {
	r := epoch.Roster{Epoch: uint32(len(j.rosters) + 1)}
	for id, dead := range j.crashed {
		if !dead && j.rng.IntN(4) > 0 {
			r.Members = append(r.Members, id)
		}
	}
	if len(r.Members) == 0 {
		r.Members = []int{slices.Index(j.crashed, false)}
	}
	j.rosters = append(j.rosters, r)
	for _, id := range r.Members {
		j.pipes[id] = append(j.pipes[id], r)
	}
}

func (j *job) fault() {
	id := j.rng.IntN(len(j.machines))
	switch j.rng.IntN(12) {
	case 0:
		alive := 0
		for _, dead := range j.crashed {
			if !dead {
				alive++
			}
		}
		if alive > 1 && j.rng.IntN(4) == 0 {
			j.crashed[id] = true
		}
	case 1, 2:
		j.stunned[id] = j.rng.IntN(200)
	case 3:
		j.side[id] = j.rng.IntN(2)
	case 4:
		clear(j.side)
	case 5, 6:
		j.roster()
	case 7:
		if !j.crashed[id] && j.stunned[id] == 0 {
			j.step(id, epoch.Event{Self: &topology.Host{Name: fmt.Sprint("h", id), Kernel: fmt.Sprint(j.rng.IntN(3))}})
		}
	}
}

// turn lets one thing happen somewhere.
func (j *job) turn() {
	id := j.rng.IntN(len(j.machines))
	for i := range j.stunned {
		j.stunned[i] = max(0, j.stunned[i]-1)
	}
	asleep := func(id int) bool { return j.crashed[id] || j.stunned[id] > 0 }
	switch k := j.rng.IntN(10); {
	case k < 1 && len(j.orders) > 0:
		i := j.rng.IntN(len(j.orders))
		o := j.orders[i]
		if asleep(o.host) {
			return
		}
		j.orders = slices.Delete(j.orders, i, i+1)
		j.step(o.host, o.answer())
	case k < 5 && len(j.net) > 0:
		i := j.rng.IntN(len(j.net))
		m, from := j.net[i], j.from[i]
		switch {
		case j.crashed[m.To] || j.side[from] != j.side[m.To]: // lost
		case asleep(m.To):
			return // its kernel keeps it
		default:
			j.step(m.To, epoch.Event{Message: m.Message})
		}
		j.net, j.from = slices.Delete(j.net, i, i+1), slices.Delete(j.from, i, i+1)
	case asleep(id):
	case k < 6:
		if p := j.pipes[id]; len(p) > 0 {
			j.pipes[id] = p[1:]
			j.step(id, epoch.Event{Roster: &p[0]})
		}
	case k < 7:
		other := j.rng.IntN(len(j.machines))
		j.step(id, epoch.Event{Seen: &other})
	case k < 9:
		if e := j.prepare[id]; e > 0 {
			j.prepare[id] = 0
			j.step(id, epoch.Event{Prepared: &e})
		}
	default:
		j.step(id, epoch.Event{Tick: true})
	}
}

// check: a host's epochs grow, it is a member of what it enters, and an epoch has one world.
func (j *job) check(seed uint64) {
	order := map[uint32][]int{}
	for id, worlds := range j.worlds {
		last := uint32(0)
		for _, w := range worlds {
			if w.Epoch <= last {
				j.t.Fatalf("seed %d: host %d entered epoch %d after %d", seed, id, w.Epoch, last)
			}
			last = w.Epoch
			if seen := order[w.Epoch]; seen != nil && !slices.Equal(seen, w.Order) {
				j.t.Fatalf("seed %d: two worlds of epoch %d: %v and %v", seed, w.Epoch, seen, w.Order)
			}
			order[w.Epoch] = w.Order
			members := slices.Sorted(slices.Values(w.Order))
			if !slices.Equal(members, j.rosters[w.Epoch-1].Members) || !slices.Contains(members, id) {
				j.t.Fatalf("seed %d: host %d entered %v, the roster has %v", seed, id, w, j.rosters[w.Epoch-1].Members)
			}
		}
	}
}

// TestSequencesOfRosters: whatever fails while rosters follow each other, there is one world of an epoch, of
// exactly the roster's members; and the last roster becomes a world once faults stop.
func TestSequencesOfRosters(t *testing.T) {
	entered := 0
	for seed := range uint64(3000) {
		j := newJob(t, 1+int(seed%6), seed)
		j.roster()
		for range 600 {
			if j.rng.IntN(12) == 0 {
				j.fault()
			}
			j.turn()
		}
		j.faults = false
		clear(j.side)
		j.roster()
		last := j.rosters[len(j.rosters)-1]
		done := func() bool {
			return !slices.ContainsFunc(last.Members, func(id int) bool {
				m := j.machines[id]
				return m.Epoch() != last.Epoch || m.State() != epoch.Committed
			})
		}
		for i := 0; !done(); i++ {
			if i > 200_000 {
				t.Fatalf("seed %d: the last roster %v became no world", seed, last)
			}
			j.turn()
		}
		j.check(seed)
		for _, worlds := range j.worlds {
			entered += len(worlds)
		}
	}
	if entered < 3000*3 {
		t.Errorf("only %d worlds were entered: the simulation shows little", entered)
	}
}
