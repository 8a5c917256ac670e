package launcher

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/launcher/plan"
	"gorun/launcher/ssh"
	"gorun/rendezvous/wire"
)

// Package elastic decides who is in a job, and this file carries its decisions out.
//
// The ranks of a job of fixed size start as soon as all its hosts are ready. The hosts form their world when the first
// rank asks for it: many programs never need one, and the others ask late. A job whose ranks do
// not ask gets a world too, a moment after the last of them has started, because daemons watch each other only in one.

// formAfter is how long after the start of the last rank a world is formed that no rank has asked for. Until then ranks
// mostly load, for which they need the CPUs.
const formAfter = time.Second

// policyTick is the interval of elastic.Tick.
const policyTick = 200 * time.Millisecond

// ElasticSpec makes a job elastic.
type ElasticSpec struct {
	elastic.Policy
	// Hosts delivers all hosts there are, at once and whenever they change.
	Hosts <-chan []elastic.DiscoveredHost
	// Admit is called for every process before it starts, so that Spec.Output takes what it writes.
	Admit func(process int, host string) error
	// World, if not nil, is called for every world before its ranks run, with their number and hosts.
	World func(ranks int, hosts []string)
}

// membership decides who is in the job. Package elastic makes the decisions.
type membership struct {
	policy *elastic.Machine
	config elastic.Config
	began  time.Time
	tick   *time.Ticker
	epoch  uint32 // of the last roster
	hosts  []int  // host ids of the last roster; nil before the first

	first []elastic.DiscoveredHost             // the hosts of a job of fixed size
	lists <-chan []elastic.DiscoveredHost      // of the hosts of an elastic job, at once and whenever they change
	admit func(process int, host string) error // is called for every new process
	world func(ranks int, hosts []string)      // is called for every world

	held  []elastic.Event // until all hosts that were taken over have given account, and while no host is heard
	names []string        // of hosts, in the order in which they were discovered
	slots map[string]int  // of hosts, as discovered last
}

func newMembership(spec *Spec) *membership {
	c := &membership{began: time.Now(), slots: map[string]int{},
		admit: func(int, string) error { return nil }, world: func(int, []string) {}}
	if e := spec.Elastic; e != nil {
		c.config = elastic.Config{Policy: e.Policy, Jitter: rand.Float64}
		c.lists, c.admit = e.Hosts, e.Admit
		if e.World != nil {
			c.world = e.World
		}
	} else {
		c.config = fixedConfig(spec)
		for _, h := range spec.Placement.Hosts {
			c.first = append(c.first, elastic.DiscoveredHost{Name: h.Name, Slots: len(h.Ranks)})
		}
	}
	c.policy, c.tick = elastic.New(c.config), time.NewTicker(policyTick)
	return c
}

// fixedConfig describes a job of fixed size, whose ranks are placed. They do not wait for their first world, unless the
// user wants to know of the hosts' edges: which one data goes is told before the ranks write anything, and how fast
// they are is measured in short jobs too.
func fixedConfig(spec *Spec) elastic.Config {
	c := elastic.Config{Policy: elastic.Fixed(len(spec.Placement.Ranks)), RanksFirst: !spec.Verbose && spec.Measured == nil,
		FormAfter: cmp.Or(spec.formAfter, formAfter), StartTimeout: spec.StartTimeout}
	for _, r := range spec.Placement.Ranks {
		c.Ranks = append(c.Ranks, r.Host)
	}
	return c
}

// discovered takes a list of hosts.
func (j *job) discovered(list []elastic.DiscoveredHost) {
	for _, h := range list {
		if _, known := j.membership.slots[h.Name]; !known {
			j.membership.names = append(j.membership.names, h.Name)
		}
		j.membership.slots[h.Name] = h.Slots
	}
	j.decide(elastic.Discovered{Hosts: list})
}

// decide reports an event to the policy. It holds events back until every host that was taken over has reported its
// state, and while no host is heard, because then none would hear of another world.
func (j *job) decide(ev elastic.Event) {
	alone := j.membership.config.OnFailure != elastic.EndJob && !j.alive.IsolatedSince().IsZero()
	if _, tick := ev.(elastic.Tick); alone || j.hosts.unaccounted() {
		if !tick {
			j.membership.held = append(j.membership.held, ev)
		}
		return
	}
	held := j.membership.held
	j.membership.held = nil
	for _, former := range held {
		j.follow(former)
	}
	j.follow(ev)
}

// follow passes an event to the policy and carries out its actions.
func (j *job) follow(ev elastic.Event) {
	if j.stopping {
		return
	}
	actions := j.membership.policy.Step(time.Since(j.membership.began), ev)
	for _, a := range actions {
		switch a := a.(type) {
		case elastic.StartHost:
			j.startHost(a)
		case elastic.DropHost:
			j.hosts[a.Host].drop()
		case elastic.HangUp:
			j.evicted = append(j.evicted, j.hosts[a.Host])
		case elastic.Roster:
			j.enter(a)
		case elastic.Form:
			j.late = time.Time{}
			j.hosts.broadcast(&wire.Form{Epoch: a.Epoch})
		case elastic.StartLate:
			j.startTimedOut()
		case elastic.GoesOnWithout:
			j.spec.Note("gorun: %s is lost: %s", j.hosts[a.Host].name, a.Why)
			j.watchHost(HostEvent{Host: j.hosts[a.Host].name, State: HostLost})
		case elastic.ProcessLost:
			j.tellLost(a.Process)
		case elastic.HostsChanged:
			j.hosts.broadcast(&wire.HostsChanged{Epoch: a.Epoch, Added: a.Added, Removed: a.Removed, Stamp: int64(a.Stamp)})
		case elastic.Note:
			j.spec.Note("gorun: %s", a.Text)
		case elastic.End:
			if a.Process < 0 { // no process began it
				j.tell(j.news.all())
			}
			j.stop(j.verdictOf(a))
		}
	}
	switch ev.(type) {
	case elastic.Tick, elastic.Started, elastic.Wanted:
		if len(actions) == 0 {
			return // as most often
		}
	}
	if !j.stopping {
		j.replicate(nil)
	}
}

// startHost begins the conversation with a daemon. Its id is the next one, or the id of a daemon that was never up.
func (j *job) startHost(s elastic.StartHost) {
	if s.Host < len(j.hosts) {
		if !j.hosts[s.Host].ended || j.hosts[s.Host].ready != nil {
			panic(fmt.Sprintf("launcher: host id %d is given again", s.Host))
		}
		j.alive.Forget(s.Host)
		j.hosts[s.Host] = j.newHost(s.Host, s.Name)
	} else {
		j.addHost(s.Name)
	}
	j.converse(j.hosts[s.Host])
}

// addHost adds a host of an elastic job.
func (j *job) addHost(name string) *host {
	h := j.newHost(len(j.hosts), name)
	j.hosts = append(j.hosts, h)
	return h
}

// newHost returns a host with what its daemon is sent.
func (j *job) newHost(id int, name string) *host {
	job := j.template
	job.Slots, job.Toward = max(j.membership.slots[name], 1), j.membership.toward(name, j.hosts)
	return newHost(id, name, j.spec, job)
}

// toward returns the name of another host, by which a host finds its path to the others: one that was started or else,
// because the first host needs a path too, one that will be. "" for none.
func (m *membership) toward(name string, started hostList) string {
	for _, h := range started {
		if h.name != name {
			return bare(h.name)
		}
	}
	for _, other := range m.names {
		if other != name {
			return bare(other)
		}
	}
	return ""
}

// drop ends a daemon that is of no use any more. Its end is reported like any other.
func (h *host) drop() {
	h.leaving = true
	if h.up {
		h.Queue.Put(&wire.Stop{})
	} else {
		h.hangUp()
	}
}

// lostBy returns the event that a host is lost, with what is known about its machine.
func (h *host) lostBy(why string) elastic.HostLost {
	ev := elastic.HostLost{Host: h.id, Reason: why}
	switch d := h.Daemon(); {
	case h.evicted != nil && h.evicted.own:
		ev.Ended = true
	case h.evicted != nil:
		ev.Alive = h.evicted.alive
	case d != nil:
		ev.Ended = d.Ended()
	case strings.HasPrefix(h.failure.Step, string(ssh.StepAuthenticate)) || strings.HasPrefix(h.failure.Step, string(ssh.StepHostKey)): // of a bastion, too
		ev.Refused = true
	default:
		ev.Alive = h.Answered()
	}
	return ev
}

// FirstWorld returns the first world of an elastic job if all of its hosts can be used.
func FirstWorld(policy elastic.Policy, hosts []elastic.DiscoveredHost) (plan.Placement, error) {
	machine := elastic.New(elastic.Config{Policy: policy})
	events := []elastic.Event{elastic.Discovered{Hosts: hosts}}
	var names []string
	for ; len(events) > 0; events = events[1:] {
		for _, a := range machine.Step(0, events[0]) {
			switch a := a.(type) {
			case elastic.StartHost:
				names = append(names, a.Name)
				events = append(events, elastic.HostUp{Host: a.Host})
			case elastic.Roster:
				p, _ := placementOf(a, func(id int) string { return names[id] })
				return p, nil
			}
		}
	}
	slots := 0
	for _, h := range hosts {
		slots += h.Slots
	}
	return plan.Placement{}, &failure.ElasticError{Cause: elastic.TooFew, Why: fmt.Sprintf("slots needed: %d, there: %d", policy.NP, slots)}
}
