package worker

import (
	"fmt"
	"slices"

	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// resume lets operations go on after a pause, over another ring if there is one.
func (d *daemon) resume(g *pause.Go) {
	if err := d.engine.Resume(g.Number, g.Order); err != nil {
		d.component().Fail("run", fmt.Errorf("end pause %d: %w", g.Number, err), "")
		return
	}
	if g.Order == nil {
		return
	}
	former := d.tune.Ring()
	d.tune.Changed(g.Order)
	if d.job.HostID == slices.Min(g.Order) {
		d.out.Write(&wire.Reordered{World: wire.World{Epoch: d.member.World().Epoch, Order: g.Order, Why: g.Why},
			Former: former, Text: g.Text})
	}
}

// reportTuning reports to the launcher, when the job is over, what this host knows of its edges, and how long its ranks
// waited for machines that moved and rings that changed.
func (d *daemon) reportTuning() {
	if d.member != nil && d.member.World().Epoch != 0 {
		if edges := d.tune.Known(); len(edges) > 0 {
			d.out.Write(&wire.Edges{Edges: edges})
		}
	}
	if count, total := d.pauses.Totals(); count > 0 {
		d.component().Tell("was paused between operations %s, %.1f s in all", topology.Count(count, "time"), total.Seconds())
	}
}
