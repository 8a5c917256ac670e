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
			op := why.Op{Host: h.name, Number: o.Number, Name: o.Name, Kind: o.Kind, Type: o.Type, Bytes: o.Bytes, Epoch: o.Epoch,
				Group: o.Group, First: at(o.First), FirstRank: o.FirstRank, Last: at(o.Last), LastRank: o.LastRank,
				Ranks: o.Ranks, Came: o.Came, Others: at(o.Hosts), LastHost: name(o.LastHost), Began: at(o.Began), Ended: at(o.Ended), Outcome: cmp.Or(o.Outcome, "open")}
			for _, missing := range o.Missing {
				op.Missing = append(op.Missing, why.Absent{Host: missing.Host, Ranks: missing.Ranks})
			}
			ops = append(ops, op)
		}
		for _, e := range m.Links {
			links = append(links, why.LinkEvent{Host: h.name, Peer: name(e.Peer), Time: at(e.At), Stream: e.Stream, What: e.What, Resent: e.Resent})
		}
		for _, s := range m.Sums {
			sums = append(sums, why.Sum{Host: h.name, Name: s.Name, Bytes: s.Bytes, Ranks: s.Ranks, Times: s.Times})
		}
	}
	return ops, links, sums
}
