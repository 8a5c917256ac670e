package tune

import (
	"context"
	"fmt"
	"reflect"

	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/facts"
)

// Rings are found beside the daemon's loop: with 1,000 hosts one takes a tenth of a second of a CPU, and as much
// whether another one pays (make rings), in which the loop has heartbeats and ranks to look after. What a ring is
// found from is taken in the loop, and whether it still counts is decided there when it has been found: for a new
// world by package epoch, for one in which data moves by reconsideration. There is one search at a time: a newer
// question ends it, because the answer to the one before would not count, and so does a newer roster.

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
	former []int           // the present one, if one is there: places in hosts, -1 for who is not a member any more
	left   []int           // the members that still are in it
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

// oneRing is the ring of all that takes one. Of the ring before hosts came or went it keeps what is left.
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

// change is the ring to change to from the present one, and whether that pays. Several rings become one when a host
// is not in the network of each any more. Otherwise they stay: what links measure is then about one network of
// theirs, and not about what one ring over all would have.
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

// bandwidth is what had been measured of a edge when the question was asked, 0 if nothing was.
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

// answer takes whether another ring pays, and reports whether to go on with that: only if hosts, ring and facts are
// still the ones that were asked about, and nothing of what was measured then has turned out to be about another edge.
// Among many hosts something is heard all the time; whether it was of the edges that the other ring would take,
// prefer looks.
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
