package tune

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/collective/schedule"
	"gorun/contrib/must"
	"gorun/rendezvous/epoch"
	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/facts"
	"gorun/worker/loop"
)

// TestOrderBeside: the loop goes on while a ring is looked for, also to another question, which ends the search, and
// takes the answer to that.
func TestOrderBeside(t *testing.T) {
	machine := epoch.New(1)
	ctx := t.Context()
	step := func(ev epoch.Event) epoch.Actions {
		t.Helper()
		a, err := machine.Step(ev)
		must.Do(t, err)
		return a
	}
	const hosts = 300
	ids := make([]int, hosts)
	for i := range ids {
		ids[i] = i + 1
	}
	job := &wire.Job{HostID: 1}
	d := New(Config{Component: loop.Component{Job: job, Loop: loop.New()}, Daemon: &host{members: ids}})
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

// TestRingFollowsHosts: with --ring-order topology the ring changes in a pause when the labels of hosts have changed and
// another one crosses fewer borders, at most once a minute; else it stays.
func TestRingFollowsHosts(t *testing.T) {
	racks := func(names ...string) (hosts []topology.Host) {
		for _, name := range names {
			hosts = append(hosts, topology.Host{Labels: map[string]string{"rack": name}})
		}
		return hosts
	}
	better, good := racks("a", "b", "a", "b"), racks("a", "a", "b", "b")
	for _, c := range []struct {
		name    string
		by      topology.By
		self    int
		hosts   []topology.Host
		members []int
		stale   bool
		recent  bool
		want    []int
	}{
		{"another ring pays", topology.ByTopology, 1, better, []int{1, 2, 3, 4}, true, false, []int{1, 2, 4, 3}},
		{"the ring is as good as any", topology.ByTopology, 1, good, []int{1, 2, 3, 4}, true, false, nil},
		{"no host has changed", topology.ByTopology, 1, better, []int{1, 2, 3, 4}, false, false, nil},
		{"it changed a moment ago", topology.ByTopology, 1, better, []int{1, 2, 3, 4}, true, true, nil},
		{"the user did not ask for it", "", 1, better, []int{1, 2, 3, 4}, true, false, nil},
		{"measurements decide", topology.ByMeasured, 1, better, []int{1, 2, 3, 4}, true, false, nil},
		{"another host coordinates", topology.ByTopology, 2, better, []int{1, 2, 3, 4}, true, false, nil},
		{"the next world is formed", topology.ByTopology, 1, nil, []int{1, 2, 3, 4}, true, false, nil},
		{"the ring is another roster's", topology.ByTopology, 1, better, []int{1, 2, 3, 5}, true, false, nil},
	} {
		var p pausesOf
		d := New(Config{Component: loop.Component{Job: &wire.Job{HostID: c.self, JobOptions: wire.JobOptions{RingOrder: string(c.by)}}, Loop: loop.New()},
			Daemon: &host{c.members, c.hosts}, Links: noLinks{}, Pauses: &p})
		d.ring = []int{1, 2, 3, 4}
		if c.stale {
			d.HostsChanged()
		}
		if c.recent {
			d.changed = time.Now()
		}
		d.Watch(t.Context())
		d.cfg.Loop.Wait()
		for done := false; !done; {
			select {
			case f := <-d.cfg.Loop.C():
				f()
			default:
				done = true
			}
		}
		if !slices.Equal(p.done.Order, c.want) || d.change != 0 {
			t.Errorf("%s: the ring changes to %v, should be %v", c.name, p.done.Order, c.want)
		}
	}
}

// host is a daemon whose roster has these hosts.
type host struct {
	members []int
	hosts   []topology.Host
}

func (h *host) Members() []int           { return h.members }
func (h *host) Settled() []topology.Host { return h.hosts }
func (h *host) Facts() *facts.File       { return &facts.File{} }

// noLinks have carried nothing.
type noLinks struct{}

func (noLinks) Status(int) (link.Status, bool) { return link.Status{}, false }
func (noLinks) Measure(context.Context, int) (schedule.Cost, error) {
	return schedule.Cost{}, errors.New("no link")
}

// pausesOf grant every pause at once, and keep how the last one ended.
type pausesOf struct{ done pause.Done }

func (p *pausesOf) NextRequest() uint32                                           { return 1 }
func (p *pausesOf) Want(_ context.Context, _ uint32, held func(), _ func(string)) { held() }
func (p *pausesOf) End(_ context.Context, done pause.Done)                        { p.done = done }
