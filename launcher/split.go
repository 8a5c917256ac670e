package launcher

import (
	"time"

	"gorun/rendezvous/wire"
)

// shortJob is how long a job takes at most whose times are shown with -v only.
const shortJob = 10 * time.Second

// showSplits shows, at the end of the job, where the time of each host's ranks went. Ranks that counted neither steps
// nor waits have nothing to show.
func (j *job) showSplits() {
	if j.spec.Note == nil || !j.spec.Verbose && time.Since(j.began) < shortJob {
		return
	}
	for _, h := range j.hosts {
		var total wire.Split
		ranks := 0
		for _, p := range j.processes {
			if p.host == h.id && p.split != nil && p.split.Counts() {
				total.Add(p.split)
				ranks++
			}
		}
		if ranks > 0 {
			j.spec.Note("gorun: %s: %s", h.name, total.Describe(ranks))
		}
	}
}
