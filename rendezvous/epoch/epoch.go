// Package epoch decides who is in the world and since which epoch. It is a pure state machine: events
// go in, actions come out; it does no I/O, has no clock and starts no goroutine. One goroutine drives
// it and performs the actions in the order of the fields of Actions.
//
// The lowest host id among the members coordinates: it collects what every host reports about itself,
// orders the ring, proposes the world, and commits it when every member has prepared its links. Every
// message is idempotent and repeated on Tick until it is answered, so loss and duplication only cost
// time.
package epoch

import (
	"fmt"
	"slices"

	"gorun/collective/schedule"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// State is how far a member is.
type State int

// States of a member, in order.
const (
	Gathering State = iota // hosts are still missing
	Preparing              // a world is proposed; links are being made
	Waiting                // this host is prepared, others may not be
	Committed              // the world holds
	Aborted                // the proposal was withdrawn; final in a job without elasticity
)

func (s State) String() string {
	return [...]string{"gathering", "preparing", "waiting", "committed", "aborted"}[s]
}

// Event is what happened; exactly one field is set, but for Cost.
type Event struct {
	Self     *topology.Host // what this host found out about itself
	Seen     *int           // gossip sees this host
	Message  wire.Message   // Facts, Propose, Prepared, Commit or Abort from a peer
	Prepared *uint32        // the links for that epoch are up
	Cost     wire.Cost      // with Prepared: what they cost
	Failed   *Failure       // this host cannot prepare the epoch
	Tick     bool           // time passed: repeat what was not answered
}

// Failure is why an epoch cannot be prepared.
type Failure struct {
	Epoch  uint32
	Reason string
}

// Send is a message for a peer.
type Send struct {
	To      int
	Message wire.Message
}

// Actions is what to do after an event, in the order of the fields.
type Actions struct {
	Prepare *wire.World // make the links for this world, then report Prepared or Failed
	Commit  *wire.World // enter this world
	Abort   *Failure    // give up
	Send    []Send      // may be lost
}

// Config describes a job's hosts.
type Config struct {
	Self  int // this host's id
	Hosts int // ids are 0 … Hosts-1
	// Order puts the hosts into ring order.
	Order func([]topology.Host) topology.Ring
}

// Machine is one host's view. The zero value is not usable.
type Machine struct {
	cfg      Config
	state    State
	self     *topology.Host
	facts    map[int]topology.Host // coordinator: what the hosts reported
	seen     map[int]bool
	prepared map[int]bool // coordinator: who is prepared for world
	world    wire.World
	reason   string // why the world was aborted
}

// New returns a machine that gathers hosts.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg, facts: map[int]topology.Host{}, seen: map[int]bool{cfg.Self: true}, prepared: map[int]bool{}}
}

// State returns how far this host is.
func (m *Machine) State() State { return m.state }

// Missing returns the hosts this one waits for, for a message to the user.
func (m *Machine) Missing() []int {
	var out []int
	for id := range m.cfg.Hosts {
		switch {
		case m.state == Gathering && m.coordinator() && !m.has(id),
			m.state == Gathering && !m.seen[id],
			m.state == Waiting && m.coordinator() && !m.prepared[id]:
			out = append(out, id)
		}
	}
	return out
}

func (m *Machine) coordinator() bool { return m.cfg.Self == 0 }

func (m *Machine) has(id int) bool { _, ok := m.facts[id]; return ok }

// Step takes one event and returns what to do about it.
func (m *Machine) Step(ev Event) (Actions, error) {
	var a Actions
	switch {
	case ev.Self != nil:
		m.self = ev.Self
		m.facts[m.cfg.Self] = *ev.Self
	case ev.Seen != nil:
		if err := m.check(*ev.Seen); err != nil {
			return a, err
		}
		m.seen[*ev.Seen] = true
	case ev.Prepared != nil:
		if m.state == Preparing && *ev.Prepared == m.world.Epoch {
			m.state = Waiting
			m.prepared[m.cfg.Self] = true
			m.world.Cost = slower(m.world.Cost, ev.Cost)
			if !m.coordinator() {
				a.Send = append(a.Send, m.reportPrepared())
			}
		}
	case ev.Failed != nil:
		if (m.state == Preparing || m.state == Waiting) && ev.Failed.Epoch == m.world.Epoch {
			m.abort(&a, *ev.Failed)
		}
		return a, nil
	case ev.Message != nil:
		if err := m.receive(ev.Message, &a); err != nil {
			return a, err
		}
	case ev.Tick:
		m.repeat(&a)
	}
	m.advance(&a)
	return a, nil
}

// advance takes the steps that the facts now allow.
func (m *Machine) advance(a *Actions) {
	if m.state == Gathering && !m.coordinator() && m.self != nil && m.seen[0] && len(a.Send) == 0 {
		a.Send = append(a.Send, m.reportFacts())
	}
	if !m.coordinator() {
		return
	}
	if m.state == Gathering && len(m.facts) == m.cfg.Hosts {
		hosts := make([]topology.Host, m.cfg.Hosts)
		for id := range hosts {
			hosts[id] = m.facts[id]
		}
		ring := m.cfg.Order(hosts)
		m.world = wire.World{Epoch: m.world.Epoch + 1, Order: ring.Order, Why: ring.Why}
		m.state = Preparing
		a.Prepare = m.copyWorld()
		a.Send = append(a.Send, m.toOthers(&wire.Propose{From: m.cfg.Self, World: m.world}, nil)...)
	}
	if m.state == Waiting && len(m.prepared) == m.cfg.Hosts {
		m.state = Committed
		a.Commit = m.copyWorld()
		a.Send = append(a.Send, m.toOthers(m.commitment(), nil)...)
	}
}

// receive handles a message of a peer; the peer holds the job's key, but its numbers are checked.
func (m *Machine) receive(msg wire.Message, a *Actions) error {
	switch msg := msg.(type) {
	case *wire.Facts:
		if err := m.check(msg.From); err != nil {
			return err
		}
		switch {
		case m.coordinator() && m.state == Gathering:
			m.facts[msg.From] = msg.Host
		case m.coordinator() && m.state == Aborted: // it missed both the proposal and the end of it
			a.Send = append(a.Send, Send{msg.From, m.abortion()})
		}
	case *wire.Propose:
		if err := m.checkWorld(msg.World); err != nil {
			return err
		}
		switch {
		case msg.World.Epoch == m.world.Epoch && m.state == Aborted:
			a.Send = append(a.Send, Send{msg.From, m.abortion()}) // our word was lost
		case msg.From != 0 || m.coordinator() || msg.World.Epoch < m.world.Epoch:
			// only the coordinator proposes, and an older epoch never comes back
		case msg.World.Epoch == m.world.Epoch && m.state == Waiting:
			a.Send = append(a.Send, m.reportPrepared()) // the answer was lost
		case msg.World.Epoch > m.world.Epoch && m.state != Aborted:
			m.world, m.state = msg.World, Preparing
			m.world.Cost = wire.Cost{}
			a.Prepare = m.copyWorld()
		}
	case *wire.Prepared:
		if err := m.check(msg.From); err != nil {
			return err
		}
		if msg.Epoch != m.world.Epoch || !m.coordinator() {
			return nil
		}
		m.prepared[msg.From] = true
		if m.state < Committed {
			m.world.Cost = slower(m.world.Cost, msg.Cost)
		}
		switch m.state {
		case Aborted: // it overtook the proposal, or was lost
			a.Send = append(a.Send, Send{msg.From, m.abortion()})
		case Committed:
			a.Send = append(a.Send, Send{msg.From, m.commitment()})
		}
	case *wire.Commit:
		if msg.From == 0 && msg.Epoch == m.world.Epoch && m.state == Waiting {
			m.state = Committed
			m.world.Cost = slower(wire.Cost{}, msg.Cost)
			a.Commit = m.copyWorld()
		}
	case *wire.Abort:
		if msg.Epoch == m.world.Epoch && (m.state == Preparing || m.state == Waiting) ||
			msg.Epoch > m.world.Epoch && msg.From == 0 && m.state == Gathering { // it overtook the proposal
			m.world.Epoch = msg.Epoch
			m.state, m.reason = Aborted, msg.Reason
			a.Abort = &Failure{msg.Epoch, msg.Reason}
			if m.coordinator() {
				a.Send = m.toOthers(m.abortion(), nil)
			}
		}
	default:
		return fmt.Errorf("step epoch: unexpected %T", msg)
	}
	return nil
}

// repeat says again what has not been answered.
func (m *Machine) repeat(a *Actions) {
	switch {
	case m.state == Gathering && !m.coordinator() && m.self != nil && m.seen[0]:
		a.Send = append(a.Send, m.reportFacts())
	case m.state == Waiting && !m.coordinator():
		a.Send = append(a.Send, m.reportPrepared())
	case m.coordinator() && (m.state == Preparing || m.state == Waiting):
		a.Send = m.toOthers(&wire.Propose{From: m.cfg.Self, World: m.world}, m.prepared)
	}
}

func (m *Machine) abort(a *Actions, f Failure) {
	m.state, m.reason = Aborted, f.Reason
	a.Abort = &f
	if m.coordinator() {
		a.Send = m.toOthers(m.abortion(), nil)
	} else {
		a.Send = []Send{{0, m.abortion()}}
	}
}

func (m *Machine) abortion() wire.Message {
	return &wire.Abort{From: m.cfg.Self, Epoch: m.world.Epoch, Reason: m.reason}
}

func (m *Machine) commitment() wire.Message {
	return &wire.Commit{From: m.cfg.Self, Epoch: m.world.Epoch, Cost: m.world.Cost}
}

// slower returns the greater costs, which set the pace; what no link can cost does not count.
func slower(a, b wire.Cost) wire.Cost {
	return wire.Cost(schedule.Cost(a).Slower(schedule.Cost(b)))
}

func (m *Machine) reportFacts() Send {
	return Send{0, &wire.Facts{From: m.cfg.Self, Host: *m.self}}
}

func (m *Machine) reportPrepared() Send {
	return Send{0, &wire.Prepared{From: m.cfg.Self, Epoch: m.world.Epoch, Cost: m.world.Cost}}
}

func (m *Machine) toOthers(msg wire.Message, except map[int]bool) []Send {
	var out []Send
	for id := range m.cfg.Hosts {
		if id != m.cfg.Self && !except[id] {
			out = append(out, Send{id, msg})
		}
	}
	return out
}

func (m *Machine) copyWorld() *wire.World {
	return &wire.World{Epoch: m.world.Epoch, Order: slices.Clone(m.world.Order), Why: slices.Clone(m.world.Why), Cost: m.world.Cost}
}

func (m *Machine) check(id int) error {
	if id < 0 || id >= m.cfg.Hosts {
		return fmt.Errorf("step epoch: host id %d is not one of %d", id, m.cfg.Hosts)
	}
	return nil
}

// checkWorld accepts only a permutation of the job's hosts.
func (m *Machine) checkWorld(w wire.World) error {
	ids := slices.Clone(w.Order)
	slices.Sort(ids)
	ok := len(ids) == m.cfg.Hosts
	for i, id := range ids {
		ok = ok && i == id
	}
	if !ok {
		return fmt.Errorf("step epoch %d: ring %v is not an order of %d hosts", w.Epoch, w.Order, m.cfg.Hosts)
	}
	return nil
}
