package worker

import (
	"slices"
	"testing"

	"gorun/rendezvous/epoch"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/facts"
)

// TestReconsideration: one question at a time is asked, none twice that was answered with no, and an answer counts if what it
// depends on is as it was.
func TestReconsideration(t *testing.T) {
	first := func() question {
		return question{epoch: 3, hosts: []topology.Host{{Name: "a"}, {Name: "b"}}, ring: []int{1, 0}, facts: &facts.File{}, heard: 7}
	}
	for _, c := range []struct {
		name   string
		change func(q *question)
		counts bool
	}{
		{"nothing changed", func(*question) {}, true},
		{"more was measured meanwhile", func(q *question) { q.heard++ }, true},
		{"a host has another network", func(q *question) { q.heard++; q.forgotten++ }, false},
		{"a host has other labels", func(q *question) { q.hosts[1].Labels = map[string]string{"rack": "r"} }, false},
		{"another world", func(q *question) { q.epoch++ }, false},
		{"another ring", func(q *question) { q.ring = []int{0, 1} }, false},
		{"other rings", func(q *question) { q.rings = []wire.RailRing{{Rail: "10.0.0.0/24"}} }, false},
		{"no question any more", func(q *question) { *q = question{heard: q.heard} }, false},
	} {
		var r reconsideration
		if !r.ask(first()) || r.ask(first()) {
			t.Fatalf("%s: not asked once", c.name)
		}
		now := first()
		c.change(&now)
		if got := r.answer(true, now); got != c.counts {
			t.Errorf("%s: the answer counts: %v", c.name, got)
		}
		if !r.ask(now) {
			t.Errorf("%s: not asked again, after it was answered that another ring pays", c.name)
		}
		if r.answer(false, now) || r.ask(now) {
			t.Errorf("%s: asked again, after it was answered that the ring stays", c.name)
		}
		if now.heard++; !r.ask(now) {
			t.Errorf("%s: not asked again, after more was measured", c.name)
		}
	}
}

// TestOrderBeside: the loop goes on while a ring is looked for, also to another question, and takes the answer to that.
func TestOrderBeside(t *testing.T) {
	d, _ := onHost(t, topology.Host{Name: "b"}, "")
	d.events = make(chan func())
	ctx := t.Context()
	step := func(ev epoch.Event) epoch.Actions {
		t.Helper()
		a, err := d.machine.Step(ev)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	const hosts = 300
	ids := make([]int, hosts)
	for i := range ids {
		ids[i] = i + 1
	}
	d.roster = &wire.Roster{}
	for _, id := range ids {
		d.roster.Peers = append(d.roster.Peers, wire.Peer{ID: id})
	}
	step(epoch.Event{Self: &d.self})
	step(epoch.Event{Roster: &epoch.Roster{Epoch: 1, Members: ids}})
	var a epoch.Actions
	for _, id := range ids[1:] {
		a = step(epoch.Event{Message: &wire.Facts{From: id, Epoch: 1, Host: topology.Host{Name: "b", Labels: map[string]string{"rack": []string{"r", "s"}[id%2]}}}})
	}
	d.order(ctx, *a.Order)
	if d.machine.State() != epoch.Ordering {
		t.Fatalf("state %v right after the question", d.machine.State())
	}
	a = step(epoch.Event{Message: &wire.Facts{From: 2, Epoch: 1, Host: topology.Host{Name: "b", Labels: map[string]string{"rack": "s"}}}})
	d.order(ctx, *a.Order)
	d.stopping = true // nothing has to be prepared
	for range 2 {
		(<-d.events)()
	}
	d.wg.Wait()
	if d.machine.State() != epoch.Preparing {
		t.Errorf("state %v after the answers", d.machine.State())
	}
}

// TestBetween: what is known of ways is told by places among the members, in their order, and of nobody else's.
func TestBetween(t *testing.T) {
	w := newEdgeWatch()
	w.hear(7, []wire.Edge{{To: 4, Bandwidth: 1e9}, {To: 2, RTT: 1e-4}, {To: 5, RTT: 1e-4}})
	w.hear(4, []wire.Edge{{To: 7, RTT: 2e-4}})
	w.hear(5, []wire.Edge{{To: 7, RTT: 2e-4}})
	got := w.between([]int{2, 4, 7})
	want := []topology.Edge{{From: 1, To: 2, RTT: 2e-4}, {From: 2, To: 0, RTT: 1e-4}, {From: 2, To: 1, Bandwidth: 1e9, InJob: true}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, should be %+v", got, want)
	}
}
