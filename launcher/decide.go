package launcher

import (
	"fmt"
	"time"

	"gorun/launcher/elastic"
	"gorun/rendezvous/wire"
)

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
	if j.membership.untold && !j.stopping {
		j.membership.untold = false
		j.tendSpares(j.membership.policy.Spares())
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
		case elastic.Spares:
			j.tendSpares(a)
		case elastic.Form:
			j.late = time.Time{}
			j.hosts.broadcast(&wire.Form{Epoch: a.Epoch})
		case elastic.StartLate:
			j.startLate()
		case elastic.GoesOnWithout:
			j.spec.Note("gorun: %s is lost: %s", j.hosts[a.Host].name, a.Why)
			j.watchHost(HostEvent{Host: j.hosts[a.Host].name, State: HostLost})
			j.record("the loss of "+j.hosts[a.Host].name, false)
		case elastic.ProcessLost:
			j.tellLost(a.Process)
			j.record(fmt.Sprintf("the loss of rank %d", a.Process), false)
		case elastic.HostsChanged:
			j.hosts.broadcast(&wire.HostsChanged{Epoch: a.Epoch, Added: a.Added, Removed: a.Removed, Stamp: int64(a.Stamp)})
		case elastic.Note:
			j.spec.Note("gorun: %s", a.Text)
		case elastic.End:
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

// startLate reports to the policy the hosts that a start which takes too long waits for.
func (j *job) startLate() {
	if failed := j.lateHosts(); len(failed) > 0 {
		j.decide(elastic.StartFailed{Hosts: failed})
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
