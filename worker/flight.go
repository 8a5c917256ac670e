package worker

import (
	"time"

	"gorun/collective/flight"
	"gorun/rendezvous/wire"
)

// lastFlight is how many operations a daemon sends that ends because a rank of it has failed.
const lastFlight = 1024

// mostMissing bounds how many of the operations that have not ended name the ranks that they wait for.
const mostMissing = 16

// mostSums is how many sums of shared memory are sent: those in which ranks were most often.
const mostSums = 256

// sendFlight sends the launcher what the flight recorder has: at most so many operations.
func (d *daemon) sendFlight(most int) {
	d.out.Write(d.flight(most))
}

// wantFlight asks the launcher for a recording of the whole job.
func (d *daemon) wantFlight(why string) {
	d.out.Write(&wire.Flight{Now: time.Now().UnixMicro(), Wanted: why})
}

func (d *daemon) flight(most int) *wire.Flight {
	m := &wire.Flight{Now: time.Now().UnixMicro()}
	since, ops := d.engine.Flight(min(most, flight.Operations))
	at := clockOf(since)
	named := 0
	for i := range ops {
		o := &ops[i]
		op := wire.FlightOp{Number: o.Number, Name: o.Name(), Kind: o.KindName(), Bytes: o.Size, Epoch: o.Epoch, Group: o.Group,
			First: at(o.First), FirstRank: int(o.FirstRank), Last: at(o.Last), LastRank: int(o.LastRank), Others: at(o.Hosts),
			LastHost: int(o.LastHost), Began: at(o.Began), Ended: at(o.Ended), Outcome: o.Outcome.String()}
		for place, rank := range o.Ranks {
			if after, ok := o.Came(place); ok {
				op.Ranks, op.Came = append(op.Ranks, rank), append(op.Came, after.Microseconds())
			}
		}
		if o.Size > 0 {
			op.Type = o.TypeName()
		}
		if len(o.Missing) > 0 && named < mostMissing {
			named++
			for _, a := range o.Missing {
				op.Missing = append(op.Missing, wire.Missing{Host: a.Host, Ranks: a.Ranks})
			}
		}
		m.Ops = append(m.Ops, op)
	}
	for _, s := range d.sessions.Sums(mostSums) {
		m.Sums = append(m.Sums, wire.FlightSum{Name: s.Name, Bytes: int64(s.Bytes), Ranks: s.Ranks, Times: s.Times})
	}
	if mesh := d.net.Links(); mesh != nil {
		since, events := mesh.Events()
		at := clockOf(since)
		for _, e := range events {
			what := "broke"
			if e.What == flight.Resumed {
				what = "resumed"
			}
			m.Links = append(m.Links, wire.LinkEvent{Time: at(e.At), Peer: e.Peer, Stream: e.Stream, What: what, Resent: e.Resent})
		}
	}
	return m
}

// clockOf returns a function that turns times since a moment into microseconds since 1970, and keeps 0. The machine's
// clock may have been set meanwhile, so the function subtracts from now how long ago a time was.
func clockOf(since time.Time) func(at int64) int64 {
	now, elapsed := time.Now().UnixMicro(), time.Since(since).Nanoseconds()
	return func(at int64) int64 {
		if at == 0 {
			return 0
		}
		return now - (elapsed-at)/1000
	}
}
