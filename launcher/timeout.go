package launcher

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gorun/rendezvous/wire"
)

// inspection is how long daemons have to say what their ranks do.
const inspection = 2 * time.Second

// inspect is the end of a job that takes too long: first every daemon is asked what its ranks do.
func (j *job) inspect() {
	if j.stopping {
		return
	}
	j.inspectC = time.After(inspection)
	j.broadcast(&wire.Inspect{})
	if len(j.up) == 0 {
		j.timedOut()
	}
}

// timedOut ends the job with what was found by now.
func (j *job) timedOut() {
	j.inspectC = nil
	e := &TimeoutError{After: j.spec.Timeout}
	for rank, id := range j.hostOfRank {
		e.States = append(e.States, fmt.Sprintf("rank %d on %s: %s", rank, j.hosts[id].name, j.rankState(rank, id)))
	}
	j.stop(e)
}

// rankState says what a rank does, in words.
func (j *job) rankState(rank, id int) string {
	found := j.inspected[id]
	switch {
	case j.exited[rank]:
		return "has ended"
	case !j.up[id]:
		return "its host was not reached"
	case !j.started[rank]:
		return "has not started"
	case found == nil:
		return "its host does not answer"
	}
	words := []string{"runs"}
	for _, s := range found.Ranks {
		if s.Process == rank {
			words[0] = s.State
		}
	}
	for _, w := range found.Waits {
		since := ""
		if w.MS >= 1000 { // less is not known: the clock runs from the first look
			since = fmt.Sprintf(", for %v or longer", (time.Duration(w.MS) * time.Millisecond).Round(time.Second))
		}
		switch {
		case len(w.Missing) == 0:
			words = append(words, fmt.Sprintf("in %s%s", w.Op, since))
		case slices.Contains(w.Missing, rank):
			words = append(words, fmt.Sprintf("has not called %s, which others wait for%s", w.Op, since))
		default:
			words = append(words, fmt.Sprintf("waits in %s for %s%s", w.Op, rankList(w.Missing), since))
		}
	}
	return strings.Join(words, "; ")
}

// rankList names ranks, the first few of many.
func rankList(ranks []int) string {
	const most = 8
	more := ""
	if len(ranks) > most {
		more = fmt.Sprintf(" and %d more", len(ranks)-most)
		ranks = ranks[:most]
	}
	noun := "rank "
	if len(ranks) > 1 || more != "" {
		noun = "ranks "
	}
	return noun + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(ranks), "[]")), ", ") + more
}
