package launcher

import (
	"cmp"
	"errors"

	"gorun/launcher/failure"
	"gorun/launcher/why"
)

// The daemons' flight recorders keep the last operations. The launcher gathers them, with what each rank does, on a
// stall, for gorun why, when a rank or a host is lost, when somebody asks by SIGUSR2, and when the job fails.

const (
	// mostFlight and leastFlight bound how many operations all hosts together send, and each of them.
	mostFlight  = 64 << 10
	leastFlight = 64
)

// share is how many operations each host is to send.
func (l hostList) share() int { return max(mostFlight/max(l.running(), 1), leastFlight) }

// recordable reports whether a job ended in a way that users may wonder about.
func recordable(err error) bool {
	return err != nil && !errors.Is(err, failure.ErrStopped) && !errors.Is(err, failure.ErrInterrupted)
}

// record puts together what daemons have sent.
func (i *inspection) record(hosts hostList) (ops []why.Op, links []why.LinkEvent, sums []why.Sum) {
	name := func(id int) string {
		if id < 0 || id >= len(hosts) {
			return ""
		}
		return hosts[id].name
	}
	for _, h := range hosts {
		m, ok := i.flights[h.id]
		if !ok {
			continue
		}
		at := func(us int64) int64 {
			if us == 0 {
				return 0
			}
			return us - m.ahead
		}
		for _, o := range m.Ops {
			op := why.Op{Host: h.name, FlightOp: o, LastHost: name(o.LastHost)}
			for _, us := range []*int64{&op.First, &op.Last, &op.Others, &op.Began, &op.Ended} {
				*us = at(*us)
			}
			op.Outcome = cmp.Or(op.Outcome, "open")
			ops = append(ops, op)
		}
		for _, e := range m.Links {
			e.Time = at(e.Time)
			links = append(links, why.LinkEvent{Host: h.name, Peer: name(e.Peer), LinkEvent: e})
		}
		for _, s := range m.Sums {
			sums = append(sums, why.Sum{Host: h.name, FlightSum: s})
		}
	}
	return ops, links, sums
}
