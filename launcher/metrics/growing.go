package metrics

import (
	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

// A process identifies one process of a rank. The next process of the rank counts from zero.
type process struct {
	host      string
	rank, pid int
}

// counts are the counters of one process. Times are in microseconds.
type counts struct {
	steps, operations, computing, data, communication, others, hidden int64
}

func countsOf(s wire.Split) counts {
	return counts{steps: s.Steps, operations: s.Operations, computing: s.Computing(), data: s.Data,
		communication: s.Communication, others: s.Others, hidden: s.Hidden}
}

// after returns the counts, none of them less than an earlier count of the process. A wait counts as one for others
// until it is over, and may turn out to have been for bytes. Prometheus would take the decrease for a restart.
func (c counts) after(earlier counts) counts {
	return counts{
		steps: max(c.steps, earlier.steps), operations: max(c.operations, earlier.operations),
		computing: max(c.computing, earlier.computing), data: max(c.data, earlier.data),
		communication: max(c.communication, earlier.communication), others: max(c.others, earlier.others),
		hidden: max(c.hidden, earlier.hidden),
	}
}

// take keeps what is known of the job, and what the processes of its ranks had counted before.
func (c *collector) take(s jobs.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counted := map[process]counts{}
	for _, r := range s.Ranks {
		if r.Split != nil {
			p := process{r.Host, r.Rank, r.PID}
			counted[p] = countsOf(*r.Split).after(c.counted[p])
		}
	}
	c.state, c.counted = s, counted
}
