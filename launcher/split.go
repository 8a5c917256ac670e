package launcher

import (
	"fmt"
	"strings"
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
			if p.host == h.id && p.split != nil && (p.split.Steps > 0 || p.split.Operations > 0) {
				add(&total, p.split)
				ranks++
			}
		}
		if ranks > 0 {
			j.spec.Note("gorun: %s: %s", h.name, describeSplit(total, ranks))
		}
	}
}

// add adds the times and operations of a rank; of steps it keeps the most, since ranks step together.
func add(total, s *wire.Split) {
	total.Elapsed += s.Elapsed
	total.Data += s.Data
	total.Others += s.Others
	total.Communication += s.Communication
	total.Hidden += s.Hidden
	total.Operations += s.Operations
	total.Steps = max(total.Steps, s.Steps)
}

// describeSplit describes the sum of the splits of some ranks.
func describeSplit(s wire.Split, ranks int) string {
	var b strings.Builder
	if s.Steps > 0 {
		each := time.Duration(s.Elapsed/int64(ranks)/s.Steps) * time.Microsecond
		fmt.Fprintf(&b, "%d steps of %v: ", s.Steps, each.Round(max(each/1000, time.Microsecond)))
	}
	share := func(t int64) string { return fmt.Sprintf("%.0f %%", 100*float64(t)/float64(max(s.Elapsed, 1))) }
	fmt.Fprintf(&b, "computing %s, data %s, communication %s", share(max(s.Elapsed-s.Data-s.Others-s.Communication, 0)),
		share(s.Data), share(s.Communication))
	if s.Hidden > 0 {
		fmt.Fprintf(&b, " (and %s hidden behind it)", share(s.Hidden))
	}
	fmt.Fprintf(&b, ", waiting for other ranks %s", share(s.Others))
	return b.String()
}
