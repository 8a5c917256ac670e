// Package epoch decides which hosts form the world, and since which epoch. It is a pure state machine: events go in,
// actions come out; it does no I/O, has no clock and starts no goroutine. One goroutine drives it and performs the
// actions in the order of the fields of Actions.
//
// The launcher's rosters determine the members of an epoch; the members alone decide whether and when its world starts.
// The member with the lowest host id is the coordinator: it collects a report from every member, has the ring ordered,
// proposes the world, and commits it once every member has prepared. So an epoch never has two worlds, and no subset of
// a roster continues alone. A newer roster overrides everything older, and messages about older epochs are ignored.
// Every message is idempotent and repeated on Tick until it is answered, so loss and duplication only cost time.
package epoch

import (
	"fmt"
	"reflect"
	"slices"

	"gorun/collective/schedule"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// State is the progress of a member.
type State int

// States of a member, in order.
const (
	Idle      State = iota // there was no roster yet, or this host is not in it
	Gathering              // reports of some hosts are missing
	Ordering               // the coordinator's search for the ring is running
	Preparing              // a world is proposed and is being prepared
	Waiting                // this host is prepared, others may not be
	Committed              // the world is in use
	Aborted                // the proposal was withdrawn; only a new roster continues
)

func (s State) String() string {
	return [...]string{"idle", "gathering", "ordering", "preparing", "waiting", "committed", "aborted"}[s]
}

// Event is an input of the machine; exactly one field is set, except for Cost.
type Event struct {
	Self     *topology.Host // the description of this host
	Roster   *Roster        // the launcher wants a new world
	Seen     *int           // gossip sees this host
	Ordered  *Ordered       // the ring that Order requested
	Message  wire.Message   // Facts, Propose, Prepared, Commit or Abort from a peer
	Prepared *uint32        // the links for that epoch are up
	Cost     wire.Cost      // with Prepared: what they cost
	Failed   *Failure       // this host cannot prepare the epoch
	Tick     bool           // time passed: repeat what was not answered
}

// Roster lists the members of an epoch.
type Roster struct {
	Epoch   uint32
	Members []int // host ids
}

// Failure is the reason why an epoch cannot be prepared.
type Failure struct {
	Epoch  uint32
	Host   int // the host that failed; not set in an Event, which concerns this host
	Reason string
}

// Question requests the ring of hosts, which are sorted by id. The search takes time for many hosts, so the driver must
// not let it delay other events. Only the answer to the latest question counts, and none after a new roster.
type Question struct {
	Number uint64
	Hosts  []topology.Host
}

// Ordered answers the question of that number: a ring as indices into its hosts.
type Ordered struct {
	Number uint64
	Ring   topology.Ring
}

// Send is a message for a peer.
type Send struct {
	To      int
	Message wire.Message
}

// Actions are what to do after an event, in the order of the fields.
type Actions struct {
	Order   *Question   // find the ring, then report Ordered
	Prepare *wire.World // prepare this world, then report Prepared or Failed
	Commit  *wire.World // enter this world
	Abort   *Failure    // give up
	Send    []Send      // messages; may be lost
}

// Machine is the view of one host. The zero value is not usable.
type Machine struct {
	id    int            // of this host
	self  *topology.Host // its description
	seen  map[int]bool
	state State

	// Of the present roster.
	epoch    uint32
	members  []int                 // ascending; the first coordinates
	facts    map[int]topology.Host // coordinator: the reports of the members
	asked    uint64                // coordinator: the number of the last question; never reset
	prepared map[int]bool          // coordinator: the members that are prepared
	world    wire.World            // the proposed world; its Epoch is 0 if there is none
	reason   string                // why the world was aborted
	culprit  int                   // the host that could not prepare it
}

// New returns the machine of a host, which waits for a roster.
func New(id int) *Machine { return &Machine{id: id, seen: map[int]bool{id: true}} }

// State returns the progress of this host.
func (m *Machine) State() State { return m.state }

// Epoch returns the epoch of the present roster, 0 before the first.
func (m *Machine) Epoch() uint32 { return m.epoch }

// Missing returns the hosts that keep the world from being proposed. Once a world is being prepared, each host knows
// best which peers it cannot reach.
func (m *Machine) Missing() []int {
	var out []int
	for _, id := range m.members {
		_, told := m.facts[id]
		switch {
		case m.state == Gathering && m.coordinator() && !told, m.state == Gathering && !m.seen[id]:
			out = append(out, id)
		}
	}
	return out
}

// Hosts returns the members' descriptions, sorted by id; nil if this host is not the coordinator or some are missing.
func (m *Machine) Hosts() []topology.Host {
	if len(m.members) == 0 || !m.coordinator() || len(m.facts) < len(m.members) {
		return nil
	}
	hosts := make([]topology.Host, len(m.members))
	for i, id := range m.members {
		hosts[i] = m.facts[id]
	}
	return hosts
}

func (m *Machine) coordinator() bool { return m.id == m.members[0] }

// Step handles one event and returns what to do about it.
func (m *Machine) Step(ev Event) (Actions, error) {
	var a Actions
	switch {
	case ev.Self != nil:
		m.self = ev.Self
		switch {
		case m.state == Gathering, (m.state == Ordering || m.state == Committed) && m.coordinator():
			m.learn(&a, m.id, *ev.Self)
		case m.state == Committed:
			m.reportFacts(&a)
		}
	case ev.Roster != nil:
		if err := m.begin(*ev.Roster); err != nil {
			return a, err
		}
	case ev.Seen != nil:
		m.seen[*ev.Seen] = true
	case ev.Ordered != nil:
		if err := m.ordered(*ev.Ordered, &a); err != nil {
			return a, err
		}
	case ev.Prepared != nil:
		if m.state == Preparing && *ev.Prepared == m.epoch {
			m.state = Waiting
			m.prepared[m.id] = true
			m.world.Cost = slower(m.world.Cost, ev.Cost)
			if !m.coordinator() {
				a.Send = append(a.Send, m.reportPrepared())
			}
		}
	case ev.Failed != nil:
		if (m.state == Preparing || m.state == Waiting) && ev.Failed.Epoch == m.epoch {
			m.abort(&a, m.id, ev.Failed.Reason)
		}
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

// begin adopts a roster, unless it is not newer than the present one. A roster without this host ends its part in the
// world that was being formed; other members may not have received it yet.
func (m *Machine) begin(r Roster) error {
	members := slices.Clone(r.Members)
	slices.Sort(members)
	switch {
	case r.Epoch == 0 || len(members) == 0 || members[0] < 0 || len(slices.Compact(slices.Clone(members))) != len(members):
		return fmt.Errorf("step epoch %d: hosts %v are no roster", r.Epoch, r.Members)
	case r.Epoch <= m.epoch:
		return nil
	case !slices.Contains(members, m.id):
		m.state, m.epoch, m.members = Idle, r.Epoch, nil
		return nil
	}
	m.state, m.epoch, m.members = Gathering, r.Epoch, members
	m.facts, m.prepared, m.world, m.reason = map[int]topology.Host{}, map[int]bool{}, wire.World{}, ""
	if m.self != nil {
		m.facts[m.id] = *m.self
	}
	return nil
}

// advance takes the steps that the facts now allow.
func (m *Machine) advance(a *Actions) {
	if m.state == Gathering && !m.coordinator() && len(a.Send) == 0 {
		m.reportFacts(a)
	}
	if m.state == Gathering && m.coordinator() && len(m.facts) == len(m.members) {
		m.state = Ordering
		m.ask(a)
	}
	if m.state == Waiting && m.coordinator() && len(m.prepared) == len(m.members) {
		m.state = Committed
		a.Commit = m.copyWorld()
		a.Send = append(a.Send, m.toOthers(m.commitment(), nil)...)
	}
}

// ask requests the ring of the members.
func (m *Machine) ask(a *Actions) {
	m.asked++
	a.Order = &Question{m.asked, m.Hosts()}
}

// learn records a member's description. If it is new while the ring is being sought, the search is repeated.
func (m *Machine) learn(a *Actions, id int, host topology.Host) {
	news := m.state == Ordering && !reflect.DeepEqual(m.facts[id], host)
	m.facts[id] = host
	if news {
		m.ask(a)
	}
}

// ordered proposes a world with the ring that was found, if it answers the latest question.
func (m *Machine) ordered(o Ordered, a *Actions) error {
	if m.state != Ordering || o.Number != m.asked {
		return nil
	}
	world := wire.World{Epoch: m.epoch, Order: m.idsOf(o.Ring.Order), Why: o.Ring.Why}
	if err := m.checkWorld(world); err != nil {
		return err
	}
	m.world, m.state = world, Preparing
	a.Prepare = m.copyWorld()
	a.Send = append(a.Send, m.toOthers(&wire.Propose{From: m.id, World: m.world}, nil)...)
	return nil
}

// receive handles a message from a peer. The peer holds the job's key, but its numbers are checked. Messages about
// another epoch are dropped: an older one is obsolete, and a later one will be repeated once its roster is here.
func (m *Machine) receive(msg wire.Message, a *Actions) error {
	from, about, err := about(msg)
	if err != nil || m.state == Idle || about != m.epoch {
		return err
	}
	if !slices.Contains(m.members, from) {
		return fmt.Errorf("step epoch %d: host id %d is not a member", m.epoch, from)
	}
	switch msg := msg.(type) {
	case *wire.Facts:
		switch {
		case m.coordinator() && (m.state == Gathering || m.state == Ordering || m.state == Committed): // in a world, it has changed
			m.learn(a, from, msg.Host)
		case m.coordinator() && m.state == Aborted: // it missed both the proposal and the abort
			a.Send = append(a.Send, Send{from, m.abortion()})
		}
	case *wire.Propose:
		if err := m.checkWorld(msg.World); err != nil {
			return err
		}
		switch {
		case from != m.members[0] || m.coordinator(): // only the coordinator proposes
		case m.state == Gathering:
			m.world, m.state = msg.World, Preparing
			m.world.Cost = wire.Cost{}
			a.Prepare = m.copyWorld()
		case m.state == Waiting:
			a.Send = append(a.Send, m.reportPrepared()) // the answer was lost
		case m.state == Aborted:
			a.Send = append(a.Send, Send{from, m.abortion()}) // the abort was lost
		}
	case *wire.Prepared:
		if !m.coordinator() {
			return nil
		}
		switch m.state {
		case Aborted: // the abort overtook the proposal, or the proposal was lost
			a.Send = append(a.Send, Send{from, m.abortion()})
		case Committed:
			a.Send = append(a.Send, Send{from, m.commitment()})
		case Preparing, Waiting:
			m.prepared[from] = true
			m.world.Cost = slower(m.world.Cost, msg.Cost)
		}
	case *wire.Commit:
		if from == m.members[0] && m.state == Waiting {
			m.state = Committed
			m.world.Cost = slower(wire.Cost{}, msg.Cost)
			a.Commit = m.copyWorld()
		}
	case *wire.Abort:
		if m.state == Preparing || m.state == Waiting ||
			m.state == Gathering && from == m.members[0] { // the commit overtook the proposal
			m.abort(a, msg.Host, msg.Reason)
		}
	}
	return nil
}

// about returns a message's sender and epoch.
func about(msg wire.Message) (from int, epoch uint32, err error) {
	switch msg := msg.(type) {
	case *wire.Facts:
		return msg.From, msg.Epoch, nil
	case *wire.Propose:
		return msg.From, msg.World.Epoch, nil
	case *wire.Prepared:
		return msg.From, msg.Epoch, nil
	case *wire.Commit:
		return msg.From, msg.Epoch, nil
	case *wire.Abort:
		return msg.From, msg.Epoch, nil
	}
	return 0, 0, fmt.Errorf("step epoch: unexpected %T", msg)
}

// repeat resends whatever has not been answered.
func (m *Machine) repeat(a *Actions) {
	switch {
	case m.state == Idle:
	case m.state == Gathering && !m.coordinator():
		m.reportFacts(a)
	case m.state == Waiting && !m.coordinator():
		a.Send = append(a.Send, m.reportPrepared())
	case m.coordinator() && (m.state == Preparing || m.state == Waiting):
		a.Send = m.toOthers(&wire.Propose{From: m.id, World: m.world}, m.prepared)
	}
}

func (m *Machine) abort(a *Actions, host int, reason string) {
	m.state, m.culprit, m.reason = Aborted, host, reason
	a.Abort = &Failure{m.epoch, host, reason}
	switch {
	case m.coordinator():
		a.Send = m.toOthers(m.abortion(), nil)
	case host == m.id:
		a.Send = []Send{{m.members[0], m.abortion()}}
	}
}

func (m *Machine) abortion() wire.Message {
	return &wire.Abort{From: m.id, Epoch: m.epoch, Host: m.culprit, Reason: m.reason}
}

func (m *Machine) commitment() wire.Message {
	return &wire.Commit{From: m.id, Epoch: m.epoch, Cost: m.world.Cost}
}

// slower returns the greater of two costs, which sets the pace. An impossible value does not count.
func slower(a, b wire.Cost) wire.Cost {
	return wire.Cost(schedule.Cost(a).Slower(schedule.Cost(b)))
}

// reportFacts sends this host's description to the coordinator, once gossip sees it.
func (m *Machine) reportFacts(a *Actions) {
	if to := m.members[0]; m.self != nil && m.seen[to] {
		a.Send = append(a.Send, Send{to, &wire.Facts{From: m.id, Epoch: m.epoch, Host: *m.self}})
	}
}

func (m *Machine) reportPrepared() Send {
	return Send{m.members[0], &wire.Prepared{From: m.id, Epoch: m.epoch, Cost: m.world.Cost}}
}

func (m *Machine) toOthers(msg wire.Message, except map[int]bool) []Send {
	var out []Send
	for _, id := range m.members {
		if id != m.id && !except[id] {
			out = append(out, Send{id, msg})
		}
	}
	return out
}

func (m *Machine) copyWorld() *wire.World {
	w := m.world
	w.Order, w.Why = slices.Clone(w.Order), slices.Clone(w.Why)
	return &w
}

// idsOf returns the members at the given indices, -1 for an index out of range.
func (m *Machine) idsOf(places []int) (ids []int) {
	for _, i := range places {
		id := -1
		if i >= 0 && i < len(m.members) {
			id = m.members[i]
		}
		ids = append(ids, id)
	}
	return ids
}

// checkWorld accepts only permutations of the roster's members.
func (m *Machine) checkWorld(w wire.World) error {
	if !slices.Equal(slices.Sorted(slices.Values(w.Order)), m.members) {
		return fmt.Errorf("step epoch %d: ring %v is not an order of hosts %v", w.Epoch, w.Order, m.members)
	}
	return nil
}
