package tune

import (
	"context"
	"fmt"
	"reflect"

	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/facts"
)

// The search for a ring runs beside the daemon's loop, which has heartbeats and ranks to look after: with 1,000 hosts
// it takes a tenth of a second of a CPU to find a ring, and as much to find whether another one pays (make rings). The
// loop collects the input of a search. When the search has ended, the loop decides whether the result still counts: by
// package epoch for a new world, by reconsideration for one in which data moves. There is one search at a time: a newer
// question or a newer roster ends it, because its answer would not count.

// search is the search for a ring that is under way, or the last one.
type search struct{ end context.CancelFunc }

// begin ends the search before and returns the context of another one.
func (s *search) begin(ctx context.Context) context.Context {
	s.stop()
	ctx, s.end = context.WithCancel(ctx)
	return ctx
}

func (s *search) stop() {
	if s.end != nil {
		s.end()
	}
}

// ringTask is what a ring is found from. It does not change any more.
type ringTask struct {
	by     topology.By
	hosts  []topology.Host // in the order of their ids
	nics   []string        // that the user chose
	facts  *facts.File
	heard  []topology.Edge // measured in the job
	former []int           // places in hosts of the present ring, if there is one; -1 for hosts that are no longer members
	left   []int           // the same without these
}

// given returns the hosts with the NICs that data may go over, the networks of several rings, and what is known of
// the edges between the hosts: the topology file, and what the job measured, which is newer.
func (t ringTask) given() (hosts []topology.Host, edges []topology.Edge, rails []string) {
	hosts = topology.OnlyNICs(t.hosts, t.nics)
	if len(t.nics) > 0 {
		rails = topology.Rails(hosts)
	}
	return hosts, append(topology.WithSums(hosts, t.facts.Edges(t.hosts), rails), t.heard...), rails
}

// ring is the ring, or the rings, of a new world. What was measured in the job counts if the user wants the ring to
// go by it; then the present ring stays as it is unless another one pays.
func (t ringTask) ring(ctx context.Context) topology.Ring {
	hosts, edges, rails := t.given()
	return t.oneRing(ctx, hosts, edges).OverRails(ctx, t.by, hosts, edges, rails)
}

// oneRing returns a single ring of all hosts. Where measurements decide, it keeps what is left of the present ring,
// unless another one pays.
func (t ringTask) oneRing(ctx context.Context, hosts []topology.Host, edges []topology.Edge) topology.Ring {
	if t.by != topology.ByMeasured || len(t.left) == 0 {
		return topology.OrderBy(ctx, t.by, hosts, edges)
	}
	order := topology.Join(hosts, edges, t.left)
	if change, pays := topology.Reorder(ctx, t.by, hosts, edges, order); pays && len(change.Unsure) == 0 {
		order = change.Ring.Order
	}
	return topology.Stay(hosts, edges, order, t.former)
}

// change returns the ring to change to from the present one, and whether that pays. Several rings become one when a
// host has left the network of one of them. Otherwise they stay: links then measure one network each, which does not
// show what one ring over all of them would carry.
func (t ringTask) change(ctx context.Context, rings []wire.RailRing) (topology.Change, bool) {
	hosts, edges, _ := t.given()
	if len(rings) == 0 {
		return topology.Reorder(ctx, t.by, hosts, edges, t.left)
	}
	rail, left := leftRail(hosts, rings)
	if !left {
		return topology.Change{}, false
	}
	return topology.Change{Ring: topology.Stay(hosts, edges, t.left, t.former),
		Why: fmt.Sprintf("not all hosts are in %s any more, so that all data takes one ring", rail)}, true
}

// bandwidth is what had been measured of an edge when the question was asked, 0 if nothing was.
func (t ringTask) bandwidth(pair topology.Pair) float64 {
	for _, e := range t.heard {
		if e.From == pair.From && e.To == pair.To {
			return e.Bandwidth
		}
	}
	return 0
}

// question is what it depends on whether another ring pays.
type question struct {
	epoch     uint32
	hosts     []topology.Host
	facts     *facts.File
	ring      []int
	rings     []wire.RailRing
	forgotten int // of what was measured
	heard     int
}

// reconsideration decides when it is asked whether another ring pays, one question at a time, and whether the answer
// still counts.
type reconsideration struct {
	asked *question // and not answered yet
	stays question  // the last one whose answer was to keep the ring
}

// ask reports whether to find the answer to a question. The same one is not asked twice.
func (r *reconsideration) ask(q question) bool {
	if r.asked != nil || reflect.DeepEqual(q, r.stays) {
		return false
	}
	r.asked = &q
	return true
}

// withdraw takes back a question whose answer is not wanted any more.
func (r *reconsideration) withdraw() { r.asked = nil }

// answer takes the answer, whether another ring pays, and reports whether to act on it: only if hosts, ring and facts
// are still the same as in the question, and no measurement was forgotten since. New measurements do not count here,
// because many hosts report some all the time; prefer checks the edges that the other ring would take.
func (r *reconsideration) answer(pays bool, now question) bool {
	asked := *r.asked
	r.asked = nil
	if !pays {
		r.stays = asked
		return false
	}
	now.heard = asked.heard
	return reflect.DeepEqual(asked, now)
}
