package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

// A process identifies one process of a rank. The next process of the rank counts from zero.
type process struct {
	host      string
	rank, pid int
}

// grown are the counters of one process, which has them in microseconds where they are times.
var grown = [...]struct {
	desc   *prometheus.Desc
	labels []string // beside those of the rank
	unit   float64
	of     func(wire.Split) int64
}{
	{steps, nil, 1, func(s wire.Split) int64 { return s.Steps }},
	{operations, nil, 1, func(s wire.Split) int64 { return s.Operations }},
	{spent, []string{"computing"}, 1e6, wire.Split.Computing},
	{spent, []string{"data"}, 1e6, func(s wire.Split) int64 { return s.Data }},
	{spent, []string{"communication"}, 1e6, func(s wire.Split) int64 { return s.Communication }},
	{spent, []string{"others"}, 1e6, func(s wire.Split) int64 { return s.Others }},
	{hidden, nil, 1e6, func(s wire.Split) int64 { return s.Hidden }},
}

// counts are the values of grown for one process.
type counts [len(grown)]int64

// take keeps what is known of the job. No count of a process is less than an earlier one: a wait counts as one for others
// until it is over, and may turn out to have been for bytes, and Prometheus would take the decrease for a restart.
func (c *collector) take(s jobs.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counted := map[process]counts{}
	for _, r := range s.Ranks {
		if r.Split == nil {
			continue
		}
		p := process{r.Host, r.Rank, r.PID}
		n := c.counted[p]
		for i, g := range grown {
			n[i] = max(n[i], g.of(*r.Split))
		}
		counted[p] = n
	}
	c.state, c.counted = s, counted
}
