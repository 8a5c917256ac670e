package tune

import (
	"cmp"
	"math"

	"gorun/collective/schedule"
	"gorun/topology"
)

// The cost of messages is fitted to the links before a world begins, and chooses the algorithms of its operations.
// Later the edges may carry less, or more. What edges carry in the job is not what a probe of idle links finds, so the
// two are not compared: the cost changes by as much as the edges have since the first seconds of the world. A new cost
// counts from a pause on, so that all hosts choose alike.

const (
	// fitTicks is for how many seconds with a known bandwidth first follows the edges.
	fitTicks = 5
	// misfit is the factor by which a cost has to be off, for misfitTicks seconds in a row.
	misfit, misfitTicks = 1.5, 3
	// misfitLatency is by how many seconds Alpha has to be off, too: short round trips are never the same twice.
	misfitLatency = 200e-6
	// stableTicks is how many seconds a cost is kept at least.
	stableTicks = 10
)

// quality is what the worst of a ring's edges are like, 0 where nothing is known.
type quality struct {
	bandwidth, rtt float64
}

// recalibration is what the coordinator knows of how well the cost fits. It is pure; look is called once a second.
type recalibration struct {
	fitted, cost schedule.Cost // before the world began, and now
	first        quality       // of the edges in the first seconds of the world
	known        int           // how many of these seconds there were
	off          int           // seconds for which the cost has not fitted
	age          int           // seconds since the world began, or since a change was last requested
	request      uint32        // for a pause that changes cost, 0 for none
}

// begin takes the cost of a new world.
func (f *recalibration) begin(c schedule.Cost) { *f = recalibration{fitted: c, cost: c} }

// look returns another cost once the present one does not fit the edges.
func (f *recalibration) look(now quality) (schedule.Cost, bool) {
	f.age++
	if !f.fitted.Sound() {
		return schedule.Cost{}, false // nothing was measured
	}
	f.first.rtt = cmp.Or(f.first.rtt, now.rtt)
	if now.bandwidth > 0 && f.known < fitTicks {
		f.known++
		f.first = now
	}
	c := f.fitted
	if f.first.rtt > 0 && now.rtt > 0 {
		c.Alpha = max(c.Alpha+(now.rtt-f.first.rtt)/2, c.Alpha/misfit)
	}
	if f.known == fitTicks && now.bandwidth > 0 {
		c.Beta *= f.first.bandwidth / now.bandwidth
	}
	late := math.Abs(c.Alpha-f.cost.Alpha) > misfitLatency && unlike(c.Alpha, f.cost.Alpha)
	if !late && !unlike(c.Beta, f.cost.Beta) {
		f.off = 0
		return schedule.Cost{}, false
	}
	f.off++
	return c, f.off >= misfitTicks && f.age >= stableTicks && c.Sound()
}

func unlike(a, b float64) bool { return a > misfit*b || b > misfit*a }

// worst returns what the worst edges of a ring of hosts are like.
func (w *edgeWatch) worst(ring []int) quality {
	var out quality
	for i, from := range ring {
		e := w.all[topology.Pair{From: from, To: ring[(i+1)%len(ring)]}]
		if e.Bandwidth > 0 && !e.Tried && (out.bandwidth == 0 || e.Bandwidth < out.bandwidth) {
			out.bandwidth = e.Bandwidth
		}
		out.rtt = max(out.rtt, e.RTT)
	}
	return out
}
