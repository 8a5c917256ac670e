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

// job is a simulation of a launcher that sends rosters whenever it likes, to hosts that crash and come back under
// another number, are stunned and partitioned, over a network that loses, duplicates, delays and reorders; all from
// one seed.
type job struct {
	t        *testing.T
	seed     uint64
	rng      *rand.Rand
	machines []*epoch.Machine
	rosters  []epoch.Roster   // by epoch - 1
	pipes    [][]epoch.Roster // from the launcher to each host: in order, nothing lost, any delay
	net      []epoch.Send
	from     []int // senders of net
	prepare  []*wire.World
	prepared map[uint32]map[int]bool // the host that reported it, by epoch
	orders   []ordering
	worlds   [][]wire.World // what each host entered
	crashed  []bool
	stunned  []int // steps until a host goes on
	side     []int // of the partition
	faults   bool
	failing  bool             // hosts may be unable to prepare a world
	failed   map[uint32][]int // those that were, by epoch
	aborted  map[uint32]int   // how many hosts know that, by epoch
	daemon   daemon
}

// daemon is what else happens on hosts, which the machine knows nothing of.
type daemon interface {
	boot(id int)
	crash(id int)
	decide(r epoch.Roster)           // what the launcher will send
	hear(id int, r epoch.Roster)     // of any roster, members or not
	ready(id int, w wire.World) bool // for a world that is prepared; asked again until it is
	enter(id int, w wire.World)
}

// idle is a host that has nothing else to do.
type idle struct{}

func (idle) boot(int)                   {}
func (idle) crash(int)                  {}
func (idle) decide(epoch.Roster)        {}
func (idle) hear(int, epoch.Roster)     {}
func (idle) ready(int, wire.World) bool { return true }
func (idle) enter(int, wire.World)      {}

// maxHosts is how many hosts there are in all, including crashed ones.
const maxHosts = 10

func newJob(t *testing.T, n int, seed uint64, d daemon) *job {
	j := &job{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 2)), prepared: map[uint32]map[int]bool{}, failed: map[uint32][]int{}, aborted: map[uint32]int{}, faults: true, daemon: d}
	for range n {
		j.add()
	}
	return j
}

func (j *job) fatalf(format string, args ...any) {
	j.t.Helper()
	j.t.Fatalf("seed %d: %s", j.seed, fmt.Sprintf(format, args...))
}

// add boots a host.
func (j *job) add() {
	id := len(j.machines)
	j.machines = append(j.machines, epoch.New(id))
	j.pipes, j.prepare, j.worlds = append(j.pipes, nil), append(j.prepare, nil), append(j.worlds, nil)
	j.crashed, j.stunned, j.side = append(j.crashed, false), append(j.stunned, 0), append(j.side, 0)
	j.daemon.boot(id)
	j.step(id, epoch.Event{Self: &topology.Host{Name: fmt.Sprint("h", id)}})
}

func (j *job) step(id int, ev epoch.Event) {
	a, err := j.machines[id].Step(ev)
	if err != nil {
		j.fatalf("host %d: %v", id, err)
	}
	if a.Order != nil {
		j.orders = append(j.orders, ordering{id, *a.Order})
	}
	if a.Prepare != nil {
		j.prepare[id] = a.Prepare
	}
	if a.Commit != nil {
		j.commit(id, *a.Commit)
	}
	if f := a.Abort; f != nil {
		if j.aborted[f.Epoch]++; !slices.Contains(j.failed[f.Epoch], f.Host) || f.Reason != "no route" {
			j.fatalf("host %d aborts epoch %d: %+v, which failed on hosts %v", id, f.Epoch, *f, j.failed[f.Epoch])
		}
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

// commit checks that no part of a roster goes on alone: all of its members are prepared for a world that one enters.
func (j *job) commit(id int, w wire.World) {
	for _, m := range j.rosters[w.Epoch-1].Members {
		if !j.prepared[w.Epoch][m] {
			j.fatalf("host %d entered epoch %d, for which host %d was not prepared", id, w.Epoch, m)
		}
	}
	j.worlds[id] = append(j.worlds[id], w)
	j.daemon.enter(id, w)
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
	j.send(r)
}

// send sends all hosts of a roster something, also hosts that are no members of it, or they would go on for ever.
func (j *job) send(r epoch.Roster) {
	j.rosters = append(j.rosters, r)
	j.prepared[r.Epoch] = map[int]bool{}
	j.daemon.decide(r)
	for id := range j.pipes {
		j.pipes[id] = append(j.pipes[id], r)
	}
}

func (j *job) alive() (ids []int) {
	for id, dead := range j.crashed {
		if !dead {
			ids = append(ids, id)
		}
	}
	return ids
}

func (j *job) asleep(id int) bool { return j.crashed[id] || j.stunned[id] > 0 }

func (j *job) fault() {
	id := j.rng.IntN(len(j.machines))
	switch j.rng.IntN(14) {
	case 0:
		if !j.crashed[id] && len(j.alive()) > 1 && j.rng.IntN(3) == 0 {
			j.crashed[id] = true
			j.daemon.crash(id)
		}
	case 1, 2:
		j.stunned[id] = j.rng.IntN(200)
	case 3:
		j.side[id] = j.rng.IntN(2)
	case 4:
		clear(j.side)
	case 5, 6:
		j.roster()
	case 7: // it finds out something else
		if !j.asleep(id) {
			j.step(id, epoch.Event{Self: &topology.Host{Name: fmt.Sprint("h", id), Kernel: fmt.Sprint(j.rng.IntN(3))}})
		}
	case 8: // one comes that is new, or was away
		if len(j.machines) < maxHosts && j.rng.IntN(3) == 0 {
			j.add()
		}
	}
}

// turn lets one thing happen somewhere.
func (j *job) turn() {
	id := j.rng.IntN(len(j.machines))
	for i := range j.stunned {
		j.stunned[i] = max(0, j.stunned[i]-1)
	}
	switch k := j.rng.IntN(10); {
	case k < 1 && len(j.orders) > 0:
		i := j.rng.IntN(len(j.orders))
		o := j.orders[i]
		if j.stunned[o.host] > 0 {
			return
		}
		j.orders = slices.Delete(j.orders, i, i+1)
		if !j.crashed[o.host] {
			j.step(o.host, o.answer())
		}
	case k < 5 && len(j.net) > 0:
		i := j.rng.IntN(len(j.net))
		m, from := j.net[i], j.from[i]
		switch {
		case j.crashed[m.To] || j.side[from] != j.side[m.To]: // lost
		case j.asleep(m.To):
			return // its kernel keeps it
		default:
			j.step(m.To, epoch.Event{Message: m.Message})
		}
		j.net, j.from = slices.Delete(j.net, i, i+1), slices.Delete(j.from, i, i+1)
	case j.asleep(id):
	case k < 6:
		if p := j.pipes[id]; len(p) > 0 {
			j.pipes[id] = p[1:]
			j.daemon.hear(id, p[0])
			j.step(id, epoch.Event{Roster: &p[0]})
		}
	case k < 7:
		other := j.rng.IntN(len(j.machines))
		j.step(id, epoch.Event{Seen: &other})
	case k < 9:
		if w := j.prepare[id]; w != nil && w.Epoch != j.machines[id].Epoch() {
			j.prepare[id] = nil // overtaken
		} else if w != nil && j.faults && j.failing && j.rng.IntN(4) == 0 {
			j.prepare[id] = nil
			j.failed[w.Epoch] = append(j.failed[w.Epoch], id)
			j.step(id, epoch.Event{Failed: &epoch.Failure{Epoch: w.Epoch, Reason: "no route"}})
		} else if w != nil && j.daemon.ready(id, *w) {
			j.prepare[id] = nil
			j.prepared[w.Epoch][id] = true
			j.step(id, epoch.Event{Prepared: &w.Epoch, Cost: wire.Cost{Alpha: 1e-6 * float64(id+1), Beta: 1e-9 * float64(10-id)}})
		}
	default:
		j.step(id, epoch.Event{Tick: true})
	}
}

// check: a host's epochs grow, it is a member of what it enters, and an epoch has one world.
func (j *job) check() {
	order := map[uint32][]int{}
	for id, worlds := range j.worlds {
		last := uint32(0)
		for _, w := range worlds {
			if w.Epoch <= last {
				j.fatalf("host %d entered epoch %d after %d", id, w.Epoch, last)
			}
			last = w.Epoch
			if seen := order[w.Epoch]; seen != nil && !slices.Equal(seen, w.Order) {
				j.fatalf("two worlds of epoch %d: %v and %v", w.Epoch, seen, w.Order)
			}
			order[w.Epoch] = w.Order
			members := slices.Sorted(slices.Values(w.Order))
			if !slices.Equal(members, j.rosters[w.Epoch-1].Members) || !slices.Contains(members, id) {
				j.fatalf("host %d entered %v, the roster has %v", id, w, j.rosters[w.Epoch-1].Members)
			}
		}
	}
}

// settle takes turns until f is true.
func (j *job) settle(turn func(), what string, f func() bool) {
	for i := 0; !f(); i++ {
		if i > 500_000 {
			j.fatalf("never: %s", what)
		}
		turn()
	}
}

// last stops faults and has the launcher decide for the last time: for all hosts that are there, or some.
func (j *job) last() epoch.Roster {
	j.faults = false
	clear(j.side)
	j.roster()
	return j.rosters[len(j.rosters)-1]
}

// entered reports whether all members of a roster are in its world.
func (j *job) entered(r epoch.Roster) bool {
	return !slices.ContainsFunc(r.Members, func(id int) bool {
		m := j.machines[id]
		return m.Epoch() != r.Epoch || m.State() != epoch.Committed
	})
}

// TestSequencesOfRosters: whatever fails while rosters follow each other, there is one world of an epoch, of exactly
// the roster's members, all of which were prepared for it; and the last roster becomes a world once faults stop. Of a host
// that cannot prepare a world the others learn.
func TestSequencesOfRosters(t *testing.T) {
	entered, learned := 0, 0
	for seed := range uint64(3000) {
		j := newJob(t, 1+int(seed%6), seed, idle{})
		j.failing = seed%2 == 0
		j.roster()
		for range 600 {
			if j.rng.IntN(12) == 0 {
				j.fault()
			}
			j.turn()
		}
		last := j.last()
		j.settle(j.turn, fmt.Sprintf("the last roster %v becomes a world", last), func() bool { return j.entered(last) })
		j.check()
		for _, worlds := range j.worlds {
			entered += len(worlds)
		}
		for e, hosts := range j.aborted {
			if hosts > len(j.failed[e]) {
				learned++
			}
		}
	}
	if entered < 3000*3 || learned < 200 {
		t.Errorf("only %d worlds were entered, and %d failures known to others: the simulation shows little", entered, learned)
	}
}
