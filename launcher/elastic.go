package launcher

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"gorun/launcher/elastic"
	"gorun/launcher/plan"
	"gorun/launcher/ssh"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// The job of a world that changes: package elastic decides, this file acts.

// policyTick is how often the policy hears that time passed.
const policyTick = 200 * time.Millisecond

// ElasticSpec makes a job elastic.
type ElasticSpec struct {
	elastic.Policy
	// Hosts delivers all hosts there are, at once and whenever they change.
	Hosts <-chan []elastic.Host
	// Admit is told of every process before it is started, so that Spec.Output takes what it writes.
	Admit func(process int, host string) error
	// World, if it is not nil, is told of every world before its ranks run: how many there are, and on which hosts.
	World func(ranks int, hosts []string)
}

// change is what decides who is in the job.
type change struct {
	policy *elastic.Machine
	config elastic.Config
	began  time.Time
	tick   *time.Ticker

	first []elastic.Host                       // the hosts of a job of fixed size
	lists <-chan []elastic.Host                // of the hosts of an elastic job, at once and whenever they change
	admit func(process int, host string) error // is called for every new process
	world func(ranks int, hosts []string)      // is called for every world

	held     []elastic.Event    // until all hosts that were taken over have given account, and while no host is heard
	names    []string           // of hosts, in the order in which they were discovered
	slots    map[string]int     // of hosts, as discovered last
	failures map[int]*RankError // by process
	mistake  time.Time          // when a process last ended with an error of its own; zero if none has
	worlds   []doomed           // that were not told of yet
}

func newChange(spec *Spec) *change {
	c := &change{began: time.Now(), slots: map[string]int{}, failures: map[int]*RankError{},
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
			c.first = append(c.first, elastic.Host{Name: h.Name, Slots: len(h.Ranks)})
		}
	}
	c.policy, c.tick = elastic.New(c.config), time.NewTicker(policyTick)
	return c
}

// fixedConfig describes a job of fixed size, whose ranks are placed. They do not wait for their first world, unless the user
// wants to know of the hosts' edges: which one data goes is told before the ranks write anything, and how fast they are is
// measured in short jobs too.
func fixedConfig(spec *Spec) elastic.Config {
	c := elastic.Config{Policy: elastic.Fixed(len(spec.Placement.Ranks)), RanksFirst: !spec.Verbose && spec.Measured == nil,
		FormAfter: cmp.Or(spec.formAfter, formAfter), StartTimeout: spec.StartTimeout}
	for _, r := range spec.Placement.Ranks {
		c.Ranks = append(c.Ranks, r.Host)
	}
	return c
}

// decide reports to the policy what happened, once it is known how all hosts stand. While none is heard, none would hear of
// another world.
func (j *job) decide(ev elastic.Event) {
	alone := j.change.config.OnFailure != elastic.EndJob && !j.alone.since.IsZero()
	if _, tick := ev.(elastic.Tick); alone || j.unaccounted() {
		if !tick {
			j.change.held = append(j.change.held, ev)
		}
		return
	}
	held := j.change.held
	j.change.held = nil
	for _, former := range held {
		j.follow(former)
	}
	j.follow(ev)
}

// follow does what the policy says about an event.
func (j *job) follow(ev elastic.Event) {
	if j.stopping {
		return
	}
	actions := j.change.policy.Step(time.Since(j.change.began), ev)
	for _, a := range actions {
		switch a := a.(type) {
		case elastic.StartHost:
			j.startHost(a)
		case elastic.DropHost:
			j.dropHost(j.hosts[a.Host])
		case elastic.HangUp:
			j.hosts[a.Host].hangUp() // its conversation reports the loss
		case elastic.Roster:
			j.enter(a)
		case elastic.Form:
			j.late = time.Time{}
			j.broadcast(&wire.Form{Epoch: a.Epoch})
		case elastic.StartLate:
			j.startTimedOut()
		case elastic.GoesOnWithout:
			j.spec.Note("gorun: %s is lost: %s", j.hosts[a.Host].name, a.Why)
			j.watchHost(HostEvent{Host: j.hosts[a.Host].name, State: HostLost})
		case elastic.ProcessLost:
			j.tellLost(a.Process)
		case elastic.HostsChanged:
			j.broadcast(&wire.HostsChanged{Epoch: a.Epoch, Added: a.Added, Removed: a.Removed, Stamp: int64(a.Stamp)})
		case elastic.Note:
			j.spec.Note("gorun: %s", a.Text)
		case elastic.End:
			if a.Process < 0 { // no process began it
				j.tellWorlds(time.Time{})
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
		j.bequeath(nil)
	}
}

// tellLost notifies the user of a rank that failed in a job that goes on.
func (j *job) tellLost(process int) {
	failure := j.change.failures[process]
	if failure == nil {
		return
	}
	if failure.Signal == 0 {
		j.change.mistake = time.Now()
	}
	j.spec.Note("gorun: %v", failure)
	for _, line := range j.spec.Output.Tail(process) {
		j.spec.Note("    %s", line)
	}
}

// doomed is a world that may not last: a mistake of the script ends one process after the other, and those that are left are in another
// world each time, until none is. Nobody wants to read of these.
type doomed struct {
	at   time.Time
	text string
}

// mistakeSpreads is how long after such an end users hear of the world that follows, if the job has not ended by then.
const mistakeSpreads = time.Second

// tellWorld tells of a world that has begun.
func (j *job) tellWorld(now time.Time, text string) {
	if !j.change.mistake.IsZero() && now.Sub(j.change.mistake) < mistakeSpreads {
		j.change.worlds = append(j.change.worlds, doomed{now, text})
		return
	}
	j.tellWorlds(time.Time{})
	j.spec.Note("%s", text)
}

// tellWorlds tells of the worlds that have lasted, or of all that nobody was told of, with the zero time.
func (j *job) tellWorlds(now time.Time) {
	for len(j.change.worlds) > 0 && !j.stopping {
		w := j.change.worlds[0]
		if !now.IsZero() && now.Sub(w.at) < mistakeSpreads {
			return
		}
		j.spec.Note("%s", w.text)
		j.change.worlds = j.change.worlds[1:]
	}
}

// ElasticError ends a job that lost too much: too many ranks at once, or ranks too often.
type ElasticError struct {
	Cause elastic.Cause
	Why   string
}

func (e *ElasticError) Error() string { return e.Why }

// verdictOf says how the job ends, in the launcher's words.
func (j *job) verdictOf(e elastic.End) error {
	switch e.Cause {
	case elastic.Finished:
		return nil
	case elastic.ProcessFailed:
		if f := j.change.failures[e.Process]; f != nil {
			f.Tail = j.spec.Output.Tail(e.Process)
			return f
		}
	case elastic.HostFailed:
		return j.hostsFailed(e)
	case elastic.Divided:
		return j.divided()
	}
	return &ElasticError{e.Cause, e.Why}
}

// discovered takes a list of hosts.
func (j *job) discovered(list []elastic.Host) {
	for _, h := range list {
		if _, known := j.change.slots[h.Name]; !known {
			j.change.names = append(j.change.names, h.Name)
		}
		j.change.slots[h.Name] = h.Slots
	}
	j.decide(elastic.Discovered{Hosts: list})
}

// startHost begins the conversation with a daemon, whose id is the next one, or that of one which was never up.
func (j *job) startHost(s elastic.StartHost) {
	if s.Host < len(j.hosts) {
		if !j.ended[s.Host] || j.ready[s.Host] != nil {
			panic(fmt.Sprintf("launcher: host id %d is given again", s.Host))
		}
		delete(j.ended, s.Host)
		delete(j.up, s.Host)
		delete(j.silences.since, s.Host)
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
	h := newHost(id, name, j.spec, j.template)
	h.job.Slots, h.job.Toward = max(j.change.slots[name], 1), j.toward(name)
	return h
}

// toward names another host than the one of a name: one that was started or else, because the first one, too, may have to
// find its path to the others, one that will be.
func (j *job) toward(name string) string {
	for _, h := range j.hosts {
		if h.name != name {
			return bare(h.name)
		}
	}
	for _, other := range j.change.names {
		if other != name {
			return bare(other)
		}
	}
	return ""
}

// dropHost ends a daemon that is of no use any more; its end is reported like that of others.
func (j *job) dropHost(h *host) {
	h.leaving = true
	if j.up[h.id] {
		h.queue.put(&wire.Stop{})
	} else {
		h.hangUp()
	}
}

// FirstWorld is the world with which an elastic job begins if all of its hosts can be used.
func FirstWorld(policy elastic.Policy, hosts []elastic.Host) (plan.Placement, error) {
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
	return plan.Placement{}, &ElasticError{elastic.TooFew, fmt.Sprintf("slots needed: %d, there: %d", policy.NP, slots)}
}

// placementOf returns a world as package plan sees it, and the ids of its hosts in their order there.
func placementOf(w elastic.Roster, name func(id int) string) (p plan.Placement, ids []int) {
	at := map[int]int{} // index of a host id
	for rank, place := range w.Places {
		i, known := at[place.Host]
		if !known {
			i = len(ids)
			at[place.Host], ids = i, append(ids, place.Host)
			p.Hosts = append(p.Hosts, plan.Host{Name: name(place.Host)})
		}
		p.Hosts[i].Ranks = append(p.Hosts[i].Ranks, rank)
		p.Ranks = append(p.Ranks, plan.Rank{Rank: rank, LocalRank: place.LocalRank, CrossRank: place.CrossRank, CrossSize: place.CrossSize, Host: i})
	}
	return p, ids
}

// enter sends the rosters of another world.
func (j *job) enter(w elastic.Roster) {
	j.epoch = w.Epoch
	roster := wire.Roster{Epoch: w.Epoch, LeaseMS: int(j.lease().Milliseconds()), Reason: w.Reason, Size: len(w.Places), Later: w.Later}
	placement, ids := placementOf(w, func(id int) string { return j.hosts[id].name })
	for i, id := range ids {
		ready := j.ready[id]
		roster.Peers = append(roster.Peers, wire.Peer{ID: id, Name: j.hosts[id].name, Gossip: ready.Gossip, Data: ready.Data, Ports: ready.Ports, Ranks: placement.Hosts[i].Ranks})
	}
	j.members = w.Hosts()
	first := j.ready[roster.Peers[0].ID]
	if len(first.Data) > 0 {
		roster.MasterAddr, _, _ = net.SplitHostPort(first.Data[0])
	}
	roster.MasterPort, roster.KVPort = first.Port, first.KVPort
	byHost := map[int][]wire.Rank{}
	for rank, p := range w.Places {
		byHost[p.Host] = append(byHost[p.Host], j.rankOf(rank, p))
		if p.Process >= len(j.hostOfRank) {
			j.hostOfRank = append(j.hostOfRank, make([]int, p.Process+1-len(j.hostOfRank))...)
		}
		j.hostOfRank[p.Process] = p.Host
		if !p.New {
			continue
		}
		if err := j.change.admit(p.Process, j.hosts[p.Host].name); err != nil {
			j.stop(err)
			return
		}
	}
	for _, h := range j.hosts {
		h.own(byHost[h.id])
	}
	j.bequeath(func() {
		var names []string
		for _, h := range placement.Hosts {
			names = append(names, h.Name)
		}
		j.change.world(len(w.Places), names)
		if w.Epoch > 1 && !w.Quiet {
			j.tellWorld(time.Now(), fmt.Sprintf("gorun: epoch %d: %s on %s, because %s", w.Epoch, topology.Count(len(w.Places), "rank"), topology.Count(len(roster.Peers), "host"), w.Reason))
		}
		present := slices.DeleteFunc(slices.Clone(j.hosts), func(h *host) bool { return j.ready[h.id] == nil || j.ended[h.id] || h.leaving })
		j.tellPeers(&roster, present)
		for _, h := range present {
			mine := roster
			mine.Ranks = byHost[h.id]
			h.queue.put(&mine)
		}
	})
}

// rankOf returns what the daemon of a place is sent about it.
func (j *job) rankOf(rank int, p elastic.Place) wire.Rank {
	number, program := j.spec.programOf(rank)
	r := wire.Rank{Process: p.Process, Rank: rank, LocalRank: p.LocalRank, CrossRank: p.CrossRank, CrossSize: p.CrossSize,
		Env: program.Env}
	if len(j.spec.Programs) > 1 {
		r.Argv, r.Dir, r.Program = program.Argv, program.Dir, number
	}
	return r
}

// lostBy tells of a host that is lost what is known of its machine.
func (h *host) lostBy(why string) elastic.HostLost {
	ev := elastic.HostLost{Host: h.id, Reason: why}
	switch d := h.daemon.Load(); {
	case h.ownWord:
		ev.Ended = true
	case h.lostWhy != "":
		ev.Alive = h.heardLast
	case h.unreachable.Load() != nil:
	case d != nil:
		ev.Ended = d.Ended == nil || d.Ended()
	case strings.HasPrefix(h.failure.Step, string(ssh.StepAuthenticate)) || strings.HasPrefix(h.failure.Step, string(ssh.StepHostKey)): // of a bastion, too
		ev.Refused = true
	default:
		ev.Alive = h.answered.Load()
	}
	return ev
}
