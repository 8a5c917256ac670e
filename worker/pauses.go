package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorun/collective/schedule"
	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// How operations of the whole ring pause: package pause decides, the engine stops, this file is between them.

// pausePatience is how many ticks of the loop a pause may take to begin: 20 s.
const pausePatience = 100

// pauses is what a daemon has to do with pauses.
type pauses struct {
	machine *pause.Machine
	wish    uint32 // the last one
	askers  map[uint32]asker

	began time.Time // the present one
	count int
	total time.Duration
}

// asker is who wants a pause.
type asker struct {
	held    func()
	refused func(reason string)
}

func newPauses(self int) pauses {
	return pauses{machine: pause.New(self, pausePatience), askers: map[uint32]asker{}}
}

// nextWish returns the number of a wish for a pause.
func (d *daemon) nextWish() uint32 {
	d.pauses.wish++
	return d.pauses.wish
}

// wantPause asks for a pause of the whole ring. held is called when everything stands still, and then that stays so
// until endPause; refused if that does not come about. Either may be called before wantPause returns.
func (d *daemon) wantPause(ctx context.Context, wish uint32, held func(), refused func(reason string)) {
	d.pauses.askers[wish] = asker{held, refused}
	d.stepPause(ctx, pause.Event{Want: wish})
}

// endPause ends what wantPause began, however far it is.
func (d *daemon) endPause(ctx context.Context, done pause.Done) {
	delete(d.pauses.askers, done.Wish)
	d.stepPause(ctx, pause.Event{Done: &done})
}

// stepPause drives the machine and does what it says, in the order of its fields.
func (d *daemon) stepPause(ctx context.Context, ev pause.Event) {
	a, err := d.pauses.machine.Step(ev)
	if err != nil {
		d.log.Warn("pause: dropped an event", "error", err)
		return
	}
	if a.Go != nil {
		d.resume(a.Go)
	}
	if a.Stop != 0 {
		d.pauses.began = time.Now()
		d.pauses.count++
		world := d.began
		d.engine.Pause(a.Stop, func() {
			d.loop.Go(func() { // it is the engine that calls, maybe on the loop's own goroutine
				d.post(ctx, func() {
					if d.began == world {
						d.stepPause(ctx, pause.Event{Quiet: a.Stop})
					}
				})
			})
		})
	}
	if asker, ok := d.pauses.askers[a.Held]; ok {
		asker.held()
	}
	for _, r := range a.Refused {
		if asker, ok := d.pauses.askers[r.Wish]; ok {
			delete(d.pauses.askers, r.Wish)
			asker.refused(r.Reason)
		}
	}
	for _, s := range a.Send {
		d.send(s.To, s.Message) // the machine repeats what gets lost
	}
}

// resume lets operations go on, over another ring or by another cost if there is one.
func (d *daemon) resume(g *pause.Go) {
	d.pauses.total += time.Since(d.pauses.began)
	before := d.engine.Describe()
	if err := d.engine.Resume(g.Number, g.Order, schedule.Cost(g.Cost)); err != nil {
		d.fail("run", fmt.Errorf("end pause %d: %w", g.Number, err), "")
		return
	}
	if g.Cost != (wire.Cost{}) && d.job.HostID == slices.Min(d.ring) {
		d.tell(fmt.Sprintf("%s: from now on %s; before %s", g.Text, d.engine.Describe(), before))
	}
	if g.Order == nil {
		return
	}
	former := d.ring
	d.ring, d.rings = g.Order, nil
	if d.job.HostID == slices.Min(d.ring) {
		d.out.Write(&wire.Reordered{World: wire.World{Epoch: d.began, Order: g.Order, Why: g.Why}, Former: former, Text: g.Text})
	}
}

// endPauses tells, when the job is over, how long its ranks waited for machines that moved and rings that changed.
func (d *daemon) endPauses() {
	if d.pauses.count > 0 {
		d.tell(fmt.Sprintf("stood still between operations %s, %.1f s in all", topology.Count(d.pauses.count, "time"), d.pauses.total.Seconds()))
	}
}
