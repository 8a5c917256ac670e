package launcher

import (
	"cmp"
	"strings"

	"gorun/launcher/elastic"
	"gorun/launcher/failure"
)

// evict gives up a host. loseEvicted loses it once all hosts that are evicted together are known. If its own daemon
// asks for the end, the policy decides when.
func (j *job) evict(h *host, e *failure.HostError, how eviction) {
	switch {
	case h.ended || how.own && j.stopping:
		return
	case h.evicted != nil && !how.own: // it asked for its end, and now it does not even answer
		h.evicted.mayLive = how.mayLive
		j.evicted = append(j.evicted, h)
		return
	case h.evicted != nil:
		return
	}
	how.why = e.Err.Error()
	h.evicted, h.failure = &how, e
	if h.ready != nil || how.own {
		j.decide(elastic.HostEvicted{Host: h.id, Own: how.own, Reason: how.why})
	}
	if !how.own {
		j.evicted = append(j.evicted, h)
	}
}

// loseEvicted reports to the policy that the hosts which were evicted are lost, and hangs up on them. Nothing that
// their conversations bring after that counts.
func (j *job) loseEvicted() {
	for len(j.evicted) > 0 {
		h := j.evicted[0]
		if j.evicted = j.evicted[1:]; !h.ended {
			h.hangUp()
			j.lose(h, h.failure)
		}
	}
}

// lose reports the end of a host whose daemon has not sent Done.
func (j *job) lose(h *host, err *failure.HostError) {
	h.ended = true
	h.failure = cmp.Or(h.failure, err)
	why := strings.TrimPrefix(err.Error(), err.Host+": ") // which the policy adds
	j.decide(h.lostBy(h.whyLost(strings.TrimPrefix(why, "run: "))))
}
