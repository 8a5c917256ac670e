package worker

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"gorun/collective/schedule"
	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// What messages cost is fitted to the links before a world begins, and chooses the algorithms of its operations. Later
// the ways may carry less, or more. What they carry in the job is not what a probe of idle links finds, so the two are
// not compared: the cost changes by as much as the ways did since the first seconds of the world. It is another one
// from a pause on, so that all hosts choose alike.

const (
	// fitTicks is for how many seconds after the ways are known the first look at them is corrected.
	fitTicks = 5
	// misfit is how far a cost has to be off, and misfitTicks for how many seconds in a row.
	misfit, misfitTicks = 1.5, 3
	// misfitLatency is by how much more, in seconds, a message has to be off: short round trips are never twice the same.
	misfitLatency = 200e-6
	// refitTicks is how many seconds a cost stays at least.
	refitTicks = 10
)

// ways is what the worst of the ring's ways are like, 0 where nothing is known.
type ways struct {
	bandwidth, rtt float64
}

// refit is what the coordinator knows of how well the cost fits. It is pure; look is called once a second.
type refit struct {
	fitted, cost schedule.Cost // before the world began, and now
	first        ways          // of its first seconds
	known        int           // seconds of these
	off          int           // seconds for which the cost has not fitted
	age          int           // seconds since it is what it is
	wish         uint32        // for a pause to change it, 0 for none
}

// begin takes the cost of a new world.
func (f *refit) begin(c schedule.Cost) { *f = refit{fitted: c, cost: c} }

// look returns another cost once the present one does not fit the ways.
func (f *refit) look(now ways) (schedule.Cost, bool) {
	f.age++
	if !f.fitted.Sound() {
		return schedule.Cost{}, false // nobody measured anything
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
	late := math.Abs(c.Alpha-f.cost.Alpha) > misfitLatency && apart(c.Alpha, f.cost.Alpha)
	if !late && !apart(c.Beta, f.cost.Beta) {
		f.off = 0
		return schedule.Cost{}, false
	}
	f.off++
	return c, f.off >= misfitTicks && f.age >= refitTicks && c.Sound()
}

func apart(a, b float64) bool { return a > misfit*b || b > misfit*a }

// along returns what the worst ways of a ring of hosts are like.
func (w *edgeWatch) along(ring []int) ways {
	var out ways
	for i, from := range ring {
		e := w.all[topology.Pair{From: from, To: ring[(i+1)%len(ring)]}]
		if e.Bandwidth > 0 && (out.bandwidth == 0 || e.Bandwidth < out.bandwidth) {
			out.bandwidth = e.Bandwidth
		}
		out.rtt = max(out.rtt, e.RTT)
	}
	return out
}

// refitCost looks, on the host that coordinates, whether what messages cost still fits, and has it changed.
func (d *daemon) refitCost(ctx context.Context) {
	if by, err := schedule.ParseAlgorithm(d.job.Algorithm); err != nil || by != schedule.Auto {
		return // the user has chosen
	}
	f := &d.refit
	now := d.edges.along(d.ring)
	cost, off := f.look(now)
	if !off || f.wish != 0 || d.edges.change != 0 {
		return
	}
	done := pause.Done{Wish: d.nextWish(), Cost: wire.Cost(cost), Text: fmt.Sprintf("the slowest way of the ring carries %.0f Mbit/s instead of %.0f", 8e-6*now.bandwidth, 8e-6*f.first.bandwidth)}
	f.wish, f.age = done.Wish, 0
	d.wantPause(ctx, done.Wish, func() {
		f.wish, f.cost, f.off = 0, cost, 0
		d.endPause(ctx, done)
	}, func(reason string) {
		f.wish = 0
		d.tell("algorithms are chosen as before, although the ways between hosts are not what they were: " + reason)
	})
}
