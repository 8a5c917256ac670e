package tune

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/collective/schedule"
	"gorun/rendezvous/epoch"
	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/facts"
	"gorun/worker/loop"
)

// TestReconsideration: one question at a time is asked, none twice that was answered with no, and an answer counts if
// what it depends on is as it was.
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
		{"more was measured meanwhile, maybe of other ways", func(q *question) { q.heard++ }, true},
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

// TestMeasuredMeanwhile: a ring is not taken that was found without what a try of its edges has shown since; asked
// again with that, it is.
func TestMeasuredMeanwhile(t *testing.T) {
	job := &wire.Job{HostID: 1, JobOptions: wire.JobOptions{RingOrder: string(topology.ByMeasured)}}
	d := New(Config{Job: job, Loop: loop.New(), Daemon: &host{members: []int{1, 2, 3, 4}}, Links: noLinks{}, Pauses: noPauses{}})
	d.ring = []int{1, 2, 3, 4}
	other := topology.Change{Ring: topology.Ring{Order: []int{0, 2, 1, 3}}, Unsure: []topology.Pair{{From: 2, To: 1}}}
	pairs := []topology.Pair{{From: 1, To: 3}, {From: 3, To: 2}, {From: 2, To: 4}, {From: 4, To: 1}}
	for _, pair := range pairs { // that are tried have been asked for
		d.edges.asked[pair] = time.Now()
		d.edges.hear(pair.From, []wire.Edge{{To: pair.To, Bandwidth: 1e9}})
	}
	delete(d.edges.all, pairs[1])
	before := d.taskFor(make([]topology.Host, 4))
	d.edges.hear(3, []wire.Edge{{To: 2, Bandwidth: 1e5}})
	d.prefer(t.Context(), before, other)
	if !d.changed.IsZero() {
		t.Error("changed to a ring over a way that has turned out to be slow while it was looked for")
	}
	other.Unsure = nil
	d.prefer(t.Context(), before, other)
	if !d.changed.IsZero() {
		t.Error("changed to it because it only was new, and not unsure")
	}
	d.prefer(t.Context(), d.taskFor(make([]topology.Host, 4)), other)
	if d.changed.IsZero() {
		t.Error("not changed to a ring that was found from all that was measured")
	}
}

// TestOneRing: of the ring before hosts went or came, exactly the edges are as before that it had, and one host alone
// has none.
func TestOneRing(t *testing.T) {
	slow := []topology.Edge{{From: 0, To: 1, Bandwidth: 1e6}, {From: 1, To: 0, Bandwidth: 1e6}}
	for from := range 4 {
		for to := range 4 {
			if from != to && from+to > 1 {
				slow = append(slow, topology.Edge{From: from, To: to, Bandwidth: 1e9})
			}
		}
	}
	for _, c := range []struct {
		name        string
		ring, ids   []int
		heard       []topology.Edge
		order, kept []int // kept by where they begin
	}{
		{"one is left of two", []int{1, 2}, []int{1}, nil, []int{0}, nil},
		{"one was alone and still is", []int{1}, []int{1}, nil, []int{0}, nil},
		{"one was alone and got company", []int{1}, []int{1, 2}, nil, []int{0, 1}, nil},
		{"one is lost of four", []int{1, 2, 3, 4}, []int{1, 2, 4}, nil, []int{0, 1, 2}, []int{0, 2}},
		{"one came", []int{1, 2, 3}, []int{1, 2, 3, 4}, nil, []int{0, 1, 2, 3}, []int{0, 1}},
		{"one came, and another ring pays", []int{1, 2, 3}, []int{1, 2, 3, 4}, slow, []int{0, 2, 1, 3}, nil},
		{"nothing changed", []int{1, 3, 2}, []int{1, 2, 3}, nil, []int{0, 2, 1}, []int{0, 1, 2}},
	} {
		task := ringTask{by: topology.ByMeasured, hosts: make([]topology.Host, len(c.ids)), facts: &facts.File{}, heard: c.heard,
			former: formerPlaces(c.ring, c.ids), left: places(c.ring, c.ids)}
		ring := task.ring(t.Context())
		if c.order != nil && !slices.Equal(ring.Order, c.order) {
			t.Errorf("%s: ring %v, should be %v", c.name, ring.Order, c.order)
		}
		var kept []int
		for i, why := range ring.Why {
			if strings.HasSuffix(why, ", as before") {
				kept = append(kept, ring.Order[i])
			}
		}
		slices.Sort(kept)
		if !slices.Equal(kept, c.kept) {
			t.Errorf("%s: of %v those after %v are as before, should be those after %v: %q", c.name, ring.Order, kept, c.kept, ring.Why)
		}
	}
}

// TestOrderBeside: the loop goes on while a ring is looked for, also to another question, which ends the search, and
// takes the answer to that.
func TestOrderBeside(t *testing.T) {
	machine := epoch.New(epoch.Config{Self: 1})
	ctx := t.Context()
	step := func(ev epoch.Event) epoch.Actions {
		t.Helper()
		a, err := machine.Step(ev)
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
	job := &wire.Job{HostID: 1}
	d := New(Config{Job: job, Loop: loop.New(), Daemon: &host{members: ids}})
	answer := func(found epoch.Ordered) { step(epoch.Event{Ordered: &found}) }
	step(epoch.Event{Self: &topology.Host{Name: "b"}})
	step(epoch.Event{Roster: &epoch.Roster{Epoch: 1, Members: ids}})
	var a epoch.Actions
	for _, id := range ids[1:] {
		a = step(epoch.Event{Message: &wire.Facts{From: id, Epoch: 1, Host: topology.Host{Name: "b", Labels: map[string]string{"rack": []string{"r", "s"}[id%2]}}}})
	}
	d.Order(ctx, *a.Order, answer)
	if machine.State() != epoch.Ordering {
		t.Fatalf("state %v right after the question", machine.State())
	}
	a = step(epoch.Event{Message: &wire.Facts{From: 2, Epoch: 1, Host: topology.Host{Name: "b", Labels: map[string]string{"rack": "s"}}}})
	d.Order(ctx, *a.Order, answer)
	for machine.State() == epoch.Ordering {
		(<-d.cfg.Loop.C())()
	}
	d.cfg.Loop.Wait() // no one waits for the answer to the first question
	if machine.State() != epoch.Preparing {
		t.Errorf("state %v after the answers", machine.State())
	}
}

// TestWithdrawn: a search whether another ring pays ends with a roster, and is begun again when it may be.
func TestWithdrawn(t *testing.T) {
	var s search
	first := s.begin(t.Context())
	second := s.begin(t.Context())
	if first.Err() == nil || second.Err() != nil {
		t.Errorf("searches that go on: the first %v, the second %v", first.Err() == nil, second.Err() == nil)
	}
	if s.stop(); second.Err() == nil {
		t.Error("the second search goes on")
	}
	var r reconsideration
	if !r.ask(question{epoch: 1}) {
		t.Fatal("not asked")
	}
	if r.withdraw(); !r.ask(question{epoch: 1}) {
		t.Error("a question that was withdrawn is not asked again")
	}
}

// TestBetween: what is known of edges is reported by places among the members, in their order, and of no one else's.
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

// host is a daemon whose roster has these hosts.
type host struct{ members []int }

func (h *host) Members() []int                     { return h.members }
func (h *host) Settled() ([]topology.Host, uint32) { return nil, 0 }
func (h *host) Facts() *facts.File                 { return &facts.File{} }
func (h *host) Send(int, wire.Message)             {}
func (h *host) Tell(string)                        {}

// noLinks have carried nothing.
type noLinks struct{}

func (noLinks) Status(int) (link.Status, bool) { return link.Status{}, false }
func (noLinks) Measure(context.Context, int) (schedule.Cost, error) {
	return schedule.Cost{}, errors.New("no link")
}

// noPauses never pause.
type noPauses struct{}

func (noPauses) NextRequest() uint32                                { return 1 }
func (noPauses) Want(context.Context, uint32, func(), func(string)) {}
func (noPauses) End(context.Context, pause.Done)                    {}
