package standing

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gorun/rendezvous/wire"
	"gorun/topology"
)

// ticket is a job in the queue, from its request until its launcher's connection ends.
type ticket struct {
	request wire.Reserve
	since   time.Time
	granted bool
	shares  []wire.Share // never changed in place; an elastic job may have none
}

// queue grants slots to jobs in order of arrival. It only decides.
type queue struct {
	hosts       []wire.MemberState // by name
	tickets     []*ticket          // by arrival
	seen        map[string]bool    // every host that was ever seen
	discovering bool               // the daemon has just started and may not have seen all hosts yet
}

// promised returns how many slots of each host have been granted.
func (q *queue) promised() map[string]int {
	promised := map[string]int{}
	for _, t := range q.tickets {
		for _, s := range t.shares {
			promised[s.Host] += s.Slots
		}
	}
	return promised
}

// free returns the slots of each host that may be granted: neither promised nor in use. Promised slots are soon in use,
// so only the larger of the two numbers counts. A draining host has none.
func (q *queue) free() []wire.Share {
	promised := q.promised()
	var out []wire.Share
	for _, h := range q.hosts {
		if !h.Draining {
			out = append(out, wire.Share{Host: h.Host, Addr: h.Addr, Born: h.Born, Slots: max(0, h.Slots-max(promised[h.Host], h.Used))})
		}
	}
	return out
}

// all returns the slots that are free in an idle cluster.
func (q *queue) all() []wire.Share {
	var out []wire.Share
	for _, h := range q.hosts {
		if !h.Draining {
			out = append(out, wire.Share{Host: h.Host, Addr: h.Addr, Born: h.Born, Slots: h.Slots})
		}
	}
	return out
}

// add appends a job, unless it would not fit even an idle cluster.
func (q *queue) add(t *ticket) error {
	if job := t.request.Job; job != "" {
		for _, x := range q.tickets {
			if x.request.Job == job && x.request.Term > t.request.Term {
				return errors.New("another launcher has taken the job over")
			}
		}
		q.tickets = slices.DeleteFunc(q.tickets, func(x *ticket) bool { return x.request.Job == job })
	}
	if len(t.request.Held) > 0 { // it runs, so its hosts have confirmed the slots
		t.granted, t.shares = true, t.request.Held
		q.tickets = append(q.tickets, t)
		return nil
	}
	all := q.all()
	room, r := all, t.request
	if r.Elastic && len(r.Shares) > 0 {
		room, r.Shares = within(all, r.Shares), nil
	}
	if fit(room, all, r) == nil {
		return &smallError{fmt.Sprintf("the cluster has %s%s: no room for %s", describe(all), q.leaving(), want(r))}
	}
	q.tickets = append(q.tickets, t)
	return nil
}

// smallError means that the cluster has too few slots for a job, even when idle.
type smallError struct{ text string }

func (e *smallError) Error() string { return e.text }

// inIdle returns what a job would get if it had all hosts to itself.
func inIdle(hosts []wire.MemberState, r wire.Reserve) ([]wire.Share, error) {
	var q queue
	for _, h := range hosts {
		h.Used = 0
		q.hosts = append(q.hosts, h)
	}
	t := &ticket{request: r}
	if err := q.add(t); err != nil {
		return nil, err
	}
	q.grant()
	return t.shares, nil
}

// leaving describes the hosts whose slots do not count because they take no more jobs.
func (q *queue) leaving() string {
	var list []string
	for _, h := range q.hosts {
		if h.Draining {
			list = append(list, h.Host)
		}
	}
	if list == nil {
		return ""
	}
	return fmt.Sprintf(" (not counted: %s, which ends when its jobs have ended)", strings.Join(list, ","))
}

func (q *queue) remove(t *ticket) {
	q.tickets = slices.DeleteFunc(q.tickets, func(x *ticket) bool { return x == t })
}

// grant gives slots to the jobs at the head of the queue that fit now. No job overtakes another, or one with many ranks
// would wait forever. Elastic jobs come first to replace slots that they lost, and last to grow beyond what they
// started with.
func (q *queue) grant() {
	for _, t := range q.tickets {
		q.grow(t, t.request.Ranks)
	}
	for _, t := range q.tickets {
		if t.granted {
			continue
		}
		free, r := q.free(), t.request
		if r.Elastic && len(r.Shares) > 0 {
			free, r.Shares = within(free, r.Shares), nil
		}
		if t.shares = fit(free, q.all(), r); t.shares == nil {
			return
		}
		t.granted = true
	}
	for _, t := range q.tickets {
		q.grow(t, cmp.Or(t.request.Most, math.MaxInt))
	}
}

// grow gives a running elastic job more hosts, up to the number of ranks. It adds only hosts where the job has nothing
// yet, as the daemon of a job cannot get more slots later.
func (q *queue) grow(t *ticket, ranks int) {
	if !t.granted || !t.request.Elastic {
		return
	}
	has := map[string]bool{}
	for _, s := range t.shares {
		has[s.Host] = true
		ranks -= s.Slots
	}
	free := q.free()
	if len(t.request.Shares) > 0 {
		free = within(free, t.request.Shares)
	}
	for _, s := range free {
		n := min(s.Slots, ranks)
		if t.request.PerHost > 0 {
			n = min(n, t.request.PerHost)
		}
		if n < 1 || n < t.request.PerHost || has[s.Host] {
			continue
		}
		s.Slots = n
		ranks -= n
		t.shares = append(slices.Clone(t.shares), s)
	}
}

// follow adapts the shares of elastic jobs to the hosts that exist.
func (q *queue) follow() {
	for _, t := range q.tickets {
		if !t.granted || !t.request.Elastic {
			continue
		}
		var kept []wire.Share
		for _, s := range t.shares {
			i := slices.IndexFunc(q.hosts, func(h wire.MemberState) bool { return h.Host == s.Host })
			switch {
			case i < 0 && (q.seen[s.Host] || !q.discovering):
				continue
			case i >= 0 && q.hosts[i].Draining:
				continue
			case i >= 0:
				s.Addr, s.Born = q.hosts[i].Addr, q.hosts[i].Born
			}
			kept = append(kept, s)
		}
		t.shares = kept
	}
}

// waitsFor describes to the user what a job waits for.
func (q *queue) waitsFor(t *ticket) string {
	ahead := 0
	for _, x := range q.tickets {
		if x == t {
			break
		}
		if !x.granted {
			ahead++
		}
	}
	text := fmt.Sprintf("waits for %s; free are %s", want(t.request), describe(q.free()))
	if ahead > 0 {
		text += fmt.Sprintf(", %d waiting before it", ahead)
	}
	return text
}

// fit chooses the slots of a job, or returns nil. It prefers the fullest single host that fits, and otherwise as few
// hosts as possible.
func fit(free, all []wire.Share, r wire.Reserve) []wire.Share {
	room := map[string]wire.Share{}
	for _, s := range free {
		room[s.Host] = s
	}
	if len(r.Shares) > 0 {
		var out []wire.Share
		for _, s := range r.Shares {
			h, ok := room[s.Host]
			if !ok || s.Slots < 1 || h.Slots < s.Slots {
				return nil
			}
			h.Slots -= s.Slots // a host may be listed twice
			room[s.Host] = h
			out = append(out, wire.Share{Host: s.Host, Addr: h.Addr, Born: h.Born, Slots: s.Slots})
		}
		return out
	}
	if r.PerHost > 0 {
		hosts := slices.DeleteFunc(slices.Clone(free), func(s wire.Share) bool { return s.Slots < r.PerHost })
		n := len(hosts)
		if r.Ranks > 0 {
			n = (r.Ranks + r.PerHost - 1) / r.PerHost
		} else if n < countIf(all, r.PerHost) {
			return nil // the job wants all hosts
		}
		if n == 0 || n > len(hosts) {
			return nil
		}
		for i := range hosts {
			hosts[i].Slots = r.PerHost
		}
		return hosts[:n]
	}
	need := r.Ranks
	if need == 0 {
		for _, s := range all {
			need += s.Slots
		}
	}
	order := slices.Clone(free)
	slices.SortStableFunc(order, func(a, b wire.Share) int {
		aFits, bFits := a.Slots >= need, b.Slots >= need
		switch {
		case aFits && bFits:
			return cmp.Compare(a.Slots, b.Slots)
		case aFits != bFits:
			return map[bool]int{true: -1, false: 1}[aFits]
		}
		return cmp.Compare(b.Slots, a.Slots)
	})
	var out []wire.Share
	for _, s := range order {
		if s.Slots = min(s.Slots, need); s.Slots > 0 {
			out = append(out, s)
			need -= s.Slots
		}
	}
	if need > 0 || len(out) == 0 {
		return nil
	}
	slices.SortFunc(out, func(a, b wire.Share) int { return strings.Compare(a.Host, b.Host) })
	return out
}

// within limits shares to the named hosts and their slots. An elastic job takes what it needs of the result.
func within(shares, named []wire.Share) []wire.Share {
	room := map[string]int{}
	for _, s := range named {
		room[s.Host] += s.Slots
	}
	var out []wire.Share
	for _, s := range shares {
		if s.Slots = min(s.Slots, room[s.Host]); room[s.Host] > 0 {
			out = append(out, s)
		}
	}
	return out
}

func countIf(shares []wire.Share, atLeast int) (n int) {
	for _, s := range shares {
		if s.Slots >= atLeast {
			n++
		}
	}
	return n
}

func want(r wire.Reserve) string {
	switch {
	case len(r.Shares) > 0:
		return describe(r.Shares)
	case r.PerHost > 0 && r.Ranks > 0:
		return fmt.Sprintf("%s, %d on a host", topology.Count(r.Ranks, "rank"), r.PerHost)
	case r.PerHost > 0:
		return fmt.Sprintf("%s on every host", topology.Count(r.PerHost, "rank"))
	case r.Ranks > 0:
		return topology.Count(r.Ranks, "rank")
	}
	return "all slots"
}

// describe lists the first few hosts in the form of -H.
func describe(shares []wire.Share) string {
	const most = 8
	var list []string
	for i, s := range shares {
		if i == most {
			list = append(list, fmt.Sprintf("and %d more hosts", len(shares)-most))
			break
		}
		list = append(list, fmt.Sprintf("%s:%d", s.Host, s.Slots))
	}
	if list == nil {
		return "no hosts"
	}
	return strings.Join(list, ",")
}
