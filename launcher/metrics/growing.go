package metrics

import "gorun/launcher/jobs"

// A process is one that a rank was at some time; another one counts from zero.
type process struct {
	host      string
	rank, pid int
}

// counts are the counters of one process. Times are in microseconds.
type counts struct {
	steps, operations, computing, data, communication, others, hidden int64
}

func countsOf(s jobs.Split) counts {
	return counts{steps: s.Steps, operations: s.Operations, computing: s.Computing(), data: s.Data,
		communication: s.Communication, others: s.Others, hidden: s.Hidden}
}

// after returns counts that are nowhere less than earlier ones of the process. A wait that is not over counts as one for
// others, and may turn out to have been for bytes; Prometheus would take the difference for a restart.
func (c counts) after(earlier counts) counts {
	return counts{
		steps: max(c.steps, earlier.steps), operations: max(c.operations, earlier.operations),
		computing: max(c.computing, earlier.computing), data: max(c.data, earlier.data),
		communication: max(c.communication, earlier.communication), others: max(c.others, earlier.others),
		hidden: max(c.hidden, earlier.hidden),
	}
}

// take keeps what the ranks report, and what their processes had counted before.
func (c *collector) take(ranks []jobs.RankStatus) {
	counted := map[process]counts{}
	for _, r := range ranks {
		if r.Split != nil {
			p := process{r.Host, r.Rank, r.PID}
			counted[p] = countsOf(*r.Split).after(c.counted[p])
		}
	}
	c.ranks, c.counted = ranks, counted
}
