package launcher

import (
	"fmt"
	"slices"
	"time"

	"gorun/rendezvous/wire"
)

// For which hosts a start waits, and for how long. A host may fall silent before there is a world in which others would notice:
// then it has its lease as in a world, and is named, not the hosts that do not reach it.

// awaited names the hosts that keep the start waiting.
func (j *job) awaited(now time.Time) string {
	if now.Sub(j.began) < j.timing().StartNoticeAfter || j.stopping {
		return ""
	}
	var names []string
	for _, h := range j.hosts {
		if h.ended || h.leaving || h.failure != nil {
			continue
		}
		if h.ready == nil || j.hosts.allReady() && j.processes.missing(h) {
			names = append(names, h.name)
		}
	}
	return someOf(names)
}

// silentHosts are those of which nothing has been heard since they were ready, for so long that a start which fails is for them to
// answer for. That a connection has just ended says nothing of its host.
func (j *job) silentHosts(now time.Time) map[*host]time.Duration {
	silent := map[*host]time.Duration{}
	for _, h := range j.hosts {
		if quiet, ok := j.alive.Silence(now, j.contact(now, h)); ok && h.ready != nil && quiet >= j.timing().NoticeAfter {
			silent[h] = quiet
		}
	}
	return silent
}

// suspended is true for a start that has taken too long, if one of its hosts is or was silent: that has its lease to be back, and then
// the others a moment to join it. In all that is for no longer than one lease.
func (j *job) suspended(now time.Time) bool {
	if j.late.IsZero() {
		j.late = now
	}
	return slices.ContainsFunc(j.hosts, func(h *host) bool {
		quiet, ok := j.alive.Silence(now, j.contact(now, h))
		lease := j.leaseOf(now, h)
		return ok && j.missed(now, h) && quiet < lease && now.Sub(j.late) < lease+j.timing().RejoinGrace
	})
}

func silentError(h *host, since time.Duration) *HostError {
	return &HostError{Host: h.name, Step: "run", Err: fmt.Errorf("silent for %.0f s", since.Seconds()), Code: ExitTransport,
		Hint: "is the host up? A virtual machine that stands still has --lease to be back"}
}

// waitsForSilent is true for the word of a host that it cannot join the others, if one of all was silent while it tried: it goes on
// trying, and how long that one may take is for its lease to say.
func (j *job) waitsForSilent(now time.Time, f *wire.Failed) bool {
	return f.Again && j.membership.policy.Starting() &&
		slices.ContainsFunc(j.hosts, func(h *host) bool { return !h.ended && j.missed(now, h) })
}

// missed reports whether a host is silent or out of reach, or was so a moment ago: hosts that have gone on take a moment to find each
// other.
func (j *job) missed(now time.Time, h *host) bool {
	return j.alive.Missing(now, j.contact(now, h), j.timing().RejoinGrace)
}
