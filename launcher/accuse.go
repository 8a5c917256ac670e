package launcher

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorun/rendezvous/wire"
	"gorun/topology"
)

// Hosts that do not hear each other any more: package elastic decides which of them are lost, this file tells it who
// says what, and does it.

// unheard is from what silence on the launcher takes another host's word for it. Daemons speak every second.
const unheard = 3 * time.Second

// reunion is how long a host that has stood still while it moved may take, once it is heard here, to be heard by its peers again.
const reunion = 10 * time.Second

// evidence takes all that a host knows against a peer.
func (j *job) evidence(h *host, m *wire.Evidence) {
	if m.Peer < 0 || m.Peer >= len(j.hosts) {
		return
	}
	if delete(h.parted, m.Peer); m.HungUp {
		h.parted[m.Peer] = true
	}
	j.unanswered(h, m)
	j.awaits(h, m)
	j.accused(h, m)
}

// accused takes what a host says of a peer.
func (j *job) accused(h *host, m *wire.Evidence) {
	if j.stopping {
		return
	}
	h.accuses = slices.DeleteFunc(h.accuses, func(s *wire.Evidence) bool { return s.Peer == m.Peer })
	if m.Suspicion == wire.NoSuspicion {
		j.accusations.Withdraw(h.id, m.Peer)
		return
	}
	h.accuses = append(h.accuses, m)
	j.judge(time.Now())
}

// awaits tells for whom a world waits.
func (j *job) awaits(h *host, m *wire.Evidence) {
	if m.AwaitedMS == 0 || m.Epoch != j.epoch || j.stopping {
		return
	}
	late, other := j.hosts[m.Peer], h
	if j.newcomer(h.id) && !j.newcomer(m.Peer) {
		late, other = other, late
	}
	if late.awaited == m.Epoch || !j.member(late) {
		return
	}
	late.awaited = m.Epoch
	waited := time.Duration(m.AwaitedMS) * time.Millisecond
	j.spec.Note("gorun: epoch %d has waited for %s for %.0f s: it and %s do not reach each other", m.Epoch, late.name, waited.Seconds(), other.name)
}

// newcomer is true for a host that has not been in a world yet, so that it holds nothing of the ranks' state.
func (j *job) newcomer(id int) bool {
	for _, w := range j.worlds { // only one host tells who is in it
		if slices.Contains(w.Order, id) {
			return false
		}
	}
	return j.worlds[id].Epoch == 0
}

// judge gives up the hosts that are lost for what others said.
func (j *job) judge(now time.Time) {
	if j.stopping || !j.alone.since.IsZero() { // then nobody can say more, or take it back
		return
	}
	var members []int
	for _, h := range j.hosts {
		if j.member(h) {
			members = append(members, h.id)
		}
	}
	for _, h := range j.hosts {
		h.accuses = slices.DeleteFunc(h.accuses, func(s *wire.Evidence) bool { return !j.member(j.hosts[s.Peer]) })
		for _, s := range h.accuses {
			switch {
			case j.excused(now, j.hosts[s.Peer]):
				j.accusations.Withdraw(h.id, s.Peer)
			case s.Suspicion == wire.LeaseEndsSoon:
				j.accusations.Foretell(now, h.id, s.Peer)
			default:
				j.accusations.Accuse(now, h.id, s.Peer)
			}
		}
	}
	heard := func(id int) bool { return j.hears(j.hosts[id], now) }
	for _, id := range j.accusations.Judge(now, members, heard, j.newcomer) {
		h := j.hosts[id]
		j.evict(h, &HostError{Host: h.name, Step: "run", Err: errors.New(j.charge(h)), Code: ExitTransport}, false)
	}
}

// excused is true for a host whose silence others may take for its loss because they have not heard that it moves: while it stands
// still for no longer than that may take, and then until it has found them again. That it is to be moved some time is no excuse
// for one that is heard here: then it is the way to the others that is broken, and either end of it may be at fault.
func (j *job) excused(now time.Time, h *host) bool {
	switch _, silent := j.silences.since[h.id]; {
	case j.spec.Lease > 0:
		return false
	case silent || !j.hears(h, now): // silent also until it is told that it is back
		return h.moves.After(now) && j.silences.quiet(now, h.heard.last(now)) < j.patience(now, h)
	}
	return now.Sub(h.back) < reunion
}

// hears is true for a host that the launcher hears.
func (j *job) hears(h *host, now time.Time) bool {
	return j.silences.quiet(now, h.heard.last(now)) < unheard
}

// member is true for a host of the present world whose word about others, and theirs about it, counts: also for one that has yet
// to be taken over from another launcher, so that one which is lost need not be looked for until its lease ends once more.
func (j *job) member(h *host) bool {
	return !j.stopping && !j.ended[h.id] && !h.leaving && h.lostWhy == "" && (j.ready[h.id] != nil || h.adopted) &&
		(j.members == nil || slices.Contains(j.members, h.id))
}

// charge is why a host is lost, in the words of one who does not hear it, or else by whom it does not hear.
func (j *job) charge(lost *host) string {
	for _, h := range j.hosts {
		for _, s := range h.accuses {
			if s.Peer != lost.id || h.lostWhy != "" {
				continue
			}
			switch s.Suspicion {
			case wire.LeaseOver:
				return fmt.Sprintf("silent for %v, as %s reports", j.lease(), h.name)
			case wire.NeverReached:
				return fmt.Sprintf("%s has not reached it for %v: check firewalls between hosts", h.name, j.timing().OverLink(j.lease()))
			}
		}
	}
	var missed []string
	for _, s := range lost.accuses {
		missed = append(missed, j.hosts[s.Peer].name)
	}
	return fmt.Sprintf("cut off from %s: %s", topology.Count(len(missed), "host"), strings.Join(missed, ", "))
}
