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
		var splits []*wire.Split
		for _, p := range j.processes {
			if p.host == h.id {
				splits = append(splits, p.split)
			}
		}
		if text := wire.DescribeSplits(splits); text != "" {
			j.spec.Note("gorun: %s: %s", h.name, text)
		}
	}
}
