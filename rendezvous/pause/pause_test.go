package pause_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
)

// sim is a world of hosts that ask for pauses whenever they like, over a network that loses, duplicates, delays and
// reorders; some hosts are stunned for a while, and worlds end. All from one seed.
type sim struct {
	t        *testing.T
	seed     uint64
	rng      *rand.Rand
	machines []*pause.Machine
	net      []pause.Send
	faults   bool

	epoch   uint32
	stopped []uint32 // by host: the pause it is in
	busy    []bool   // it got the order to stop, and is not quiet
	stunned []int
	rings   [][]string // by host: the orders that it got in this world, with their pauses
	request []uint32
	wants   []map[uint32]bool // requests that are neither held nor over
	held    []uint32          // the request that a host holds
	grants  int
	refused int
	orders  int
}

const patience = 40

func newSim(t *testing.T, n int, seed uint64) *sim {
	s := &sim{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 5)), faults: true, stopped: make([]uint32, n), busy: make([]bool, n),
		stunned: make([]int, n), rings: make([][]string, n), request: make([]uint32, n), held: make([]uint32, n)}
	for id := range n {
		s.machines = append(s.machines, pause.New(id, patience))
		s.wants = append(s.wants, map[uint32]bool{})
	}
	s.world()
	return s
}

// world begins another one; every host hears of it at once, messages of the last one are still under way.
func (s *sim) world() {
	s.epoch++
	var members []int
	for id := range s.machines {
		members = append(members, id)
		s.stopped[id], s.busy[id], s.held[id], s.rings[id] = 0, false, 0, nil
	}
	for id := range s.machines {
		s.step(id, pause.Event{World: &pause.WorldHosts{Epoch: s.epoch, Members: members}})
		if len(s.wants[id]) > 0 {
			s.t.Fatalf("seed %d: the end of the world leaves requests %v", s.seed, s.wants[id])
		}
	}
}

func (s *sim) step(id int, ev pause.Event) {
	a, err := s.machines[id].Step(ev)
	if err != nil {
		s.t.Fatalf("seed %d: host %d: %v", s.seed, id, err)
	}
	if a.Go != nil {
		if s.stopped[id] != a.Go.Number {
			s.t.Fatalf("seed %d: host %d goes on after pause %d, but is in %d", s.seed, id, a.Go.Number, s.stopped[id])
		}
		if a.Go.Order != nil {
			if s.busy[id] {
				s.t.Fatalf("seed %d: the ring changes under host %d, which is not quiet", s.seed, id)
			}
			s.orders++
			s.rings[id] = append(s.rings[id], fmt.Sprint(a.Go.Number, a.Go.Order))
		}
		s.stopped[id], s.busy[id] = 0, false
	}
	if a.Stop != 0 {
		if s.stopped[id] != 0 {
			s.t.Fatalf("seed %d: host %d stops twice", s.seed, id)
		}
		s.stopped[id], s.busy[id] = a.Stop, true
	}
	if a.Held != 0 {
		if !s.wants[id][a.Held] {
			s.t.Fatalf("seed %d: host %d is given request %d, which it does not have", s.seed, id, a.Held)
		}
		for other := range s.machines {
			if s.held[other] != 0 {
				s.t.Fatalf("seed %d: hosts %d and %d hold pauses at once", s.seed, id, other)
			}
			if s.stopped[other] == 0 || s.stopped[other] != s.stopped[id] || s.busy[other] {
				s.t.Fatalf("seed %d: host %d holds a pause, host %d is in %d, busy %v", s.seed, id, other, s.stopped[other], s.busy[other])
			}
		}
		delete(s.wants[id], a.Held)
		s.held[id] = a.Held
		s.grants++
	}
	for _, r := range a.Refused {
		delete(s.wants[id], r.Request)
		s.refused++
	}
	for _, m := range a.Send {
		copies := 1
		if s.faults {
			copies = s.rng.IntN(3)
		}
		for range copies {
			s.net = append(s.net, m)
		}
	}
}

// done gives a pause back, sometimes with another ring.
func (s *sim) done(id int, request uint32) {
	d := pause.Done{Request: request}
	if s.rng.IntN(2) == 0 {
		d.Order = s.rng.Perm(len(s.machines))
	}
	s.step(id, pause.Event{Done: &d})
}

// turn lets one thing happen somewhere.
func (s *sim) turn() {
	id := s.rng.IntN(len(s.machines))
	for i := range s.stunned {
		s.stunned[i] = max(0, s.stunned[i]-1)
	}
	if k := s.rng.IntN(10); k < 6 && len(s.net) > 0 {
		i := s.rng.IntN(len(s.net))
		m := s.net[i]
		if s.stunned[m.To] > 0 {
			return // its kernel keeps it
		}
		s.net = slices.Delete(s.net, i, i+1)
		s.step(m.To, pause.Event{Message: m.Message})
		return
	}
	if s.stunned[id] > 0 {
		return
	}
	switch k := s.rng.IntN(8); {
	case k < 3:
		if s.busy[id] {
			s.busy[id] = false
			s.step(id, pause.Event{Quiet: s.stopped[id]})
		}
	case k < 4:
		if w := s.held[id]; w != 0 {
			s.held[id] = 0
			s.done(id, w)
		}
	case len(s.net) < 2*len(s.machines) || k == 7: // time passes slowly beside messages
		s.step(id, pause.Event{Tick: true})
	}
}

func (s *sim) fault() {
	id := s.rng.IntN(len(s.machines))
	switch s.rng.IntN(14) {
	case 0:
		s.stunned[id] = s.rng.IntN(400)
	case 1:
		if s.rng.IntN(8) == 0 {
			s.world()
		}
	case 2, 3, 4:
		s.request[id]++
		s.wants[id][s.request[id]] = true
		s.step(id, pause.Event{Want: s.request[id]})
	case 5:
		if wants := slices.Sorted(maps.Keys(s.wants[id])); len(wants) > 0 { // it waits no longer
			delete(s.wants[id], wants[0])
			s.done(id, wants[0])
		}
	}
}

// agree checks that no two hosts got different rings.
func (s *sim) agree() {
	for id := range s.rings {
		if n := len(s.rings[id]); n > 0 && len(s.rings[0]) >= n && !slices.Equal(s.rings[0][:n], s.rings[id]) {
			s.t.Fatalf("seed %d: host 0 was told the rings %v, host %d %v", s.seed, s.rings[0], id, s.rings[id])
		}
	}
}

// TestPauses: whatever is lost, however many ask at once, and whenever worlds end, one request is granted at a time,
// with all hosts quiet in one pause, all of them get the same rings, and once faults stop all requests end and all
// hosts go on.
func TestPauses(t *testing.T) {
	grants, refused, orders := 0, 0, 0
	for seed := range uint64(1000) {
		s := newSim(t, 1+int(seed%5), seed)
		for range 800 {
			if s.rng.IntN(8) == 0 {
				s.fault()
			}
			s.turn()
			s.agree()
		}
		s.faults = false
		over := func() bool {
			for id, m := range s.machines {
				if m.Busy() || s.stopped[id] != 0 || s.held[id] != 0 || len(s.wants[id]) > 0 {
					return false
				}
			}
			return len(s.net) == 0
		}
		for i := 0; !over(); i++ {
			if i > 200_000 {
				t.Fatalf("seed %d: it does not come to an end: in pauses %v, requests %v, held %v", seed, s.stopped, s.wants, s.held)
			}
			s.turn()
		}
		s.agree()
		for id := range s.rings {
			if !slices.Equal(s.rings[id], s.rings[0]) {
				t.Fatalf("seed %d: in the end host %d has the rings %v, host 0 %v", seed, id, s.rings[id], s.rings[0])
			}
		}
		grants, refused, orders = grants+s.grants, refused+s.refused, orders+s.orders
	}
	t.Logf("%d pauses granted, %d refused, %d times another ring for a host", grants, refused, orders)
	if grants < 1000 || refused < 100 || orders < 1000 {
		t.Error("the simulation shows little")
	}
}

// TestPatience: a pause that a host is not quiet for is given up, and the error names that host.
func TestPatience(t *testing.T) {
	a, b := pause.New(0, 3), pause.New(1, 3)
	step := func(m *pause.Machine, ev pause.Event) pause.Actions {
		t.Helper()
		got, err := m.Step(ev)
		must.Do(t, err)
		return got
	}
	world := pause.Event{World: &pause.WorldHosts{Epoch: 1, Members: []int{1, 0}}}
	step(a, world)
	step(b, world)
	asked := step(b, pause.Event{Want: 7})
	begun := step(a, pause.Event{Message: asked.Send[0].Message})
	if begun.Stop != 1 || len(begun.Send) != 1 {
		t.Fatalf("asked, the coordinator does %+v", begun)
	}
	if got := step(b, pause.Event{Message: begun.Send[0].Message}); got.Stop != 1 || b.Number() != 1 {
		t.Fatalf("told to stop, host 1 does %+v", got)
	}
	step(b, pause.Event{Quiet: 1})
	for i := range 4 {
		got := step(a, pause.Event{Tick: true})
		if (got.Go != nil) != (i == 3) {
			t.Fatalf("at tick %d: %+v", i, got)
		}
		for _, m := range got.Send {
			if m.Message.Verb == wire.PauseOver {
				refused := step(b, pause.Event{Message: m.Message}).Refused
				if len(refused) != 1 || refused[0].Request != 7 || !strings.Contains(refused[0].Reason, "host ids [0 1] do not stop") {
					t.Errorf("host 1 is told %+v", refused)
				}
			}
		}
	}
}

// TestUnauthenticated: only members are heard, only the coordinator commands, and only of this world.
func TestUnauthenticated(t *testing.T) {
	m := pause.New(1, 3)
	if _, err := m.Step(pause.Event{World: &pause.WorldHosts{Epoch: 2, Members: []int{0, 1, 2}}}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		msg  wire.Pause
		fail bool
	}{
		{wire.Pause{From: 9, Epoch: 2, Verb: wire.PauseStop, Number: 1}, true},
		{wire.Pause{From: 0, Epoch: 2, Verb: wire.PauseGo, Number: 1, Order: []int{0, 1}}, true},
		{wire.Pause{From: 2, Epoch: 2, Verb: wire.PauseStop, Number: 1}, false},
		{wire.Pause{From: 0, Epoch: 1, Verb: wire.PauseStop, Number: 1}, false},
		{wire.Pause{From: 0, Epoch: 2, Verb: wire.PauseAsk, Request: 1}, false},
	} {
		a, err := m.Step(pause.Event{Message: &tc.msg})
		if (err != nil) != tc.fail || a.Stop != 0 || a.Go != nil || len(a.Send) > 0 {
			t.Errorf("%+v: %+v, %v", tc.msg, a, err)
		}
	}
}
