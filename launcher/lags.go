package launcher

import (
	"fmt"
	"slices"
	"time"

	"gorun/launcher/jobs"
	"gorun/launcher/lag"
	"gorun/rendezvous/wire"
)

const (
	// lagEvery is how often daemons are asked what their ranks have counted.
	lagEvery = time.Second
	// evictEvery is how often a host is drained at most because a rank of it slows the job down. If the rank's part of the
	// work is what takes longer, the spare in its place will be as slow.
	evictEvery = time.Hour
)

// lags follows which ranks and links slow the job down.
type lags struct {
	detector lag.Detector
	usage    map[int]*wire.Usage // the latest, by host
	hinted   bool
	evicted  time.Time // when a host was drained last because it lags
}

// evicts reports whether a host may be drained because it lags, and notes that it is.
func (l *lags) evicts(now time.Time) bool {
	if !l.evicted.IsZero() && now.Sub(l.evicted) < evictEvery {
		return false
	}
	l.evicted = now
	return true
}

// drop forgets what ranks have counted so far.
func (l *lags) drop() {
	l.usage = nil
	l.detector.Drop()
}

// take takes what the ranks of a host have counted.
func (l *lags) take(h *host, u *wire.Usage) {
	if l.usage == nil {
		l.usage = map[int]*wire.Usage{}
	}
	l.usage[h.id] = u
}

// lookForLags tells what has begun to slow the job down, or no longer does, and asks again. Ranks of several programs do
// not do the same.
func (j *job) lookForLags() {
	if j.stopping || j.membership.epoch == 0 || j.spec.Blind || len(j.spec.Programs) > 1 {
		return
	}
	if j.disturbed(time.Now()) {
		j.lags.drop()
	}
	if ranks, links, ok := j.counted(); ok {
		for _, c := range j.lags.detector.Take(j.membership.epoch, ranks, links) {
			j.tellLag(c)
		}
	}
	for _, id := range j.membership.hosts {
		if h := j.hosts[id]; h.up && !h.ended {
			h.Queue.Put(&wire.AskUsage{Brief: true})
		}
	}
}

// disturbed reports whether a host of the world moves or is silent, which slows all ranks down.
func (j *job) disturbed(now time.Time) bool {
	return slices.ContainsFunc(j.membership.hosts, func(id int) bool {
		return j.alive.Moving(id).After(now) || !j.membership.hears(id)
	})
}

// counted returns what all ranks and links of the world have counted, false if some have not.
func (j *job) counted() (ranks []lag.Rank, links []lag.Link, ok bool) {
	of := map[int]*wire.Split{}
	for _, id := range j.membership.hosts {
		u := j.lags.usage[id]
		if u == nil || u.Epoch != j.membership.epoch {
			return nil, nil, false
		}
		for _, r := range u.Ranks {
			of[r.Rank] = r.Split
		}
		for _, l := range j.hosts.linksTo(u.Each) {
			links = append(links, lag.Link{From: j.hosts[id].name, To: l.To, Bytes: int64(l.BusyBytes), Busy: l.BusyUS})
		}
	}
	for _, p := range j.membership.policy.World() {
		s := of[p.Process]
		if s == nil || s.Steps == 0 {
			return nil, nil, false
		}
		ranks = append(ranks, lag.Rank{Number: p.Process, Host: j.hosts[p.Host].name, Steps: s.Steps, Elapsed: s.Elapsed, Data: s.Data,
			Others: s.Others, Communication: s.Communication, Stolen: j.lags.usage[p.Host].Stolen})
	}
	return ranks, links, true
}

// tellLag notifies the user, and has the ranks of a slow host leave it if the user wants that and spares wait elsewhere.
func (j *job) tellLag(c lag.Change) {
	j.spec.Note("gorun: %s", describeLag(c))
	if c.Over {
		return
	}
	j.hintAtWhy(&j.lags.hinted)
	if !j.spec.EvictStragglers || c.Rank < 0 || !j.membership.policy.Replaceable(c.Host) {
		return
	}
	if !j.lags.evicts(time.Now()) {
		j.spec.Note("gorun: %s is not drained: a host was less than an hour ago, and the job is slow again", c.Host)
	} else {
		j.drain(Drain{Host: c.Host, Answer: make(chan jobs.Departure, 1)})
	}
}

// describeLag is a line about a rank or a link.
func describeLag(c lag.Change) string {
	who := fmt.Sprintf("rank %d on %s", c.Rank, c.Host)
	if c.Rank < 0 {
		who = fmt.Sprintf("the link from %s to %s", c.Host, c.To)
	}
	switch {
	case c.Over:
		return who + " is as fast as others again"
	case c.Cause == lag.Carrying:
		return fmt.Sprintf("%s slows the job down: it carries %s, and others %s", who, speed(c.Speed), speed(c.UsualSpeed))
	}
	what := fmt.Sprintf("%s slows the job down: it takes %s for its part of a step, and others %s", who, threeDigits(c.Own), threeDigits(c.Usual))
	switch c.Cause {
	case lag.Data:
		what += ": it waits for its input data"
	case lag.Stolen:
		what += fmt.Sprintf(": the hypervisor gives %s of each step to other machines", threeDigits(c.Stolen))
	}
	return what
}

// threeDigits rounds a time to a power of ten that leaves it three digits at least.
func threeDigits(d time.Duration) string {
	unit := time.Microsecond
	for unit <= d/1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

func speed(bytes float64) string { return fmt.Sprintf("%.3g MB/s", bytes/1e6) }
