package epoch_test

import (
	"slices"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/epoch"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

func first(n int) []int {
	var ids []int
	for id := range n {
		ids = append(ids, id)
	}
	return ids
}

// ordering is a ring that a host looks for.
type ordering struct {
	host     int
	question epoch.Question
}

func (o ordering) answer() epoch.Event {
	return epoch.Event{Ordered: &epoch.Ordered{Number: o.question.Number, Ring: order(o.question.Hosts)}}
}

func order(hosts []topology.Host) topology.Ring {
	r := topology.Ring{}
	for i := range hosts {
		r.Order = append(r.Order, len(hosts)-1-i)
		r.Why = append(r.Why, "test")
	}
	return r
}

func TestRefusesNonsense(t *testing.T) {
	m := epoch.New(1)
	for _, r := range []epoch.Roster{{0, []int{1}}, {1, nil}, {1, []int{1, 1}}, {1, []int{-1, 1}}} {
		if _, err := m.Step(epoch.Event{Roster: &r}); err == nil || m.State() != epoch.Idle {
			t.Errorf("%+v was accepted", r)
		}
	}
	if _, err := m.Step(epoch.Event{Roster: &epoch.Roster{Epoch: 1, Members: first(3)}}); err != nil {
		t.Fatal(err)
	}
	for _, msg := range []wire.Message{
		&wire.Facts{From: 3, Epoch: 1},
		&wire.Prepared{From: -1, Epoch: 1},
		&wire.Propose{From: 0, World: wire.World{Epoch: 1, Order: []int{0, 1}}},
		&wire.Propose{From: 0, World: wire.World{Epoch: 1, Order: []int{0, 1, 1}}},
		&wire.Hello{},
	} {
		if _, err := m.Step(epoch.Event{Message: msg}); err == nil {
			t.Errorf("%T %+v was accepted", msg, msg)
		}
	}
	// A proposal of a host that is not the coordinator, and of another epoch, change nothing.
	w := wire.World{Epoch: 1, Order: []int{2, 1, 0}}
	for _, msg := range []*wire.Propose{{From: 2, World: w}, {From: 0, World: wire.World{Epoch: 0, Order: w.Order}},
		{From: 0, World: wire.World{Epoch: 2, Order: w.Order}}} {
		if a, err := m.Step(epoch.Event{Message: msg}); err != nil || a.Prepare != nil || m.State() != epoch.Gathering {
			t.Errorf("%+v: actions %+v, error %v, state %v", msg, a, err, m.State())
		}
	}
}

// TestOrdered: while the ring is looked for, the machine takes events; what makes the question another one has it asked
// again, and only the answer to the last one counts.
func TestOrdered(t *testing.T) {
	m := epoch.New(0)
	var asked []epoch.Question
	step := func(ev epoch.Event) epoch.Actions {
		t.Helper()
		a, err := m.Step(ev)
		must.Do(t, err)
		if a.Order != nil {
			asked = append(asked, *a.Order)
		}
		return a
	}
	answer := func(q int) epoch.Actions { t.Helper(); return step(ordering{0, asked[q]}.answer()) }
	questions := func(want int) {
		t.Helper()
		if len(asked) != want || m.State() != epoch.Ordering {
			t.Fatalf("%d questions in state %v, should be %d", len(asked), m.State(), want)
		}
	}
	facts := func(e uint32, speed int) epoch.Event {
		return epoch.Event{Message: &wire.Facts{From: 1, Epoch: e, Host: topology.Host{Name: "b", NICs: []topology.NIC{{Speed: speed}}}}}
	}
	step(epoch.Event{Self: &topology.Host{Name: "a"}})
	step(epoch.Event{Roster: &epoch.Roster{Epoch: 1, Members: first(2)}})
	step(facts(1, 10))
	questions(1)
	step(facts(1, 10)) // sent again, because nothing was answered
	step(epoch.Event{Tick: true})
	questions(1)
	step(facts(1, 25))
	questions(2)
	step(epoch.Event{Self: &topology.Host{Name: "a", Platform: "kvm"}})
	questions(3)
	if h := asked[2].Hosts; h[0].Platform != "kvm" || h[1].NICs[0].Speed != 25 {
		t.Errorf("the ring of %+v is looked for", h)
	}
	answer(0)
	answer(1)
	questions(3)
	if _, err := m.Step(epoch.Event{Ordered: &epoch.Ordered{Number: asked[2].Number, Ring: topology.Ring{Order: []int{0, 2}}}}); err == nil {
		t.Error("a ring with a host that there is not was taken")
	}
	step(epoch.Event{Roster: &epoch.Roster{Epoch: 2, Members: first(2)}})
	answer(2)
	if m.State() != epoch.Gathering {
		t.Fatalf("state %v after the answer for a former roster", m.State())
	}
	step(facts(2, 25))
	questions(4)
	if a := answer(3); a.Prepare == nil || a.Prepare.Epoch != 2 || len(a.Send) != 1 || m.State() != epoch.Preparing {
		t.Errorf("after the answer: %+v, state %v", a, m.State())
	}
	if a := answer(3); a.Prepare != nil || len(a.Send) > 0 {
		t.Errorf("after the same answer again: %+v", a)
	}
}

// TestMissing: while hosts gather, the one that coordinates misses those that have not reported to it, the others those
// that they do not see; and none does once a world is proposed.
func TestMissing(t *testing.T) {
	for _, self := range []int{0, 1} {
		m := epoch.New(self)
		expect := func(want ...int) {
			t.Helper()
			if got := m.Missing(); !slices.Equal(got, want) {
				t.Errorf("host %d in state %v misses %v, want %v", self, m.State(), got, want)
			}
		}
		step := func(ev epoch.Event) {
			t.Helper()
			if _, err := m.Step(ev); err != nil {
				t.Fatal(err)
			}
		}
		expect()
		step(epoch.Event{Self: &topology.Host{}})
		step(epoch.Event{Roster: &epoch.Roster{Epoch: 1, Members: first(3)}})
		expect(slices.DeleteFunc(first(3), func(id int) bool { return id == self })...)
		other := 1 - self
		step(epoch.Event{Seen: &other})
		if self == 1 {
			expect(2)
			step(epoch.Event{Message: &wire.Propose{World: wire.World{Epoch: 1, Order: first(3)}}})
			expect()
			continue
		}
		two := 2
		step(epoch.Event{Seen: &two})
		expect(1, 2)
		step(epoch.Event{Message: &wire.Facts{From: 1, Epoch: 1}})
		expect(2)
		step(epoch.Event{Message: &wire.Facts{From: 2, Epoch: 1}})
		expect()
	}
}
