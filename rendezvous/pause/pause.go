// Package pause decides when all hosts of a world stop between two operations, and who may have them stand still.
// It is a pure state machine: events go in, actions come out; it does no I/O, has no clock and starts no goroutine.
// One goroutine drives it and performs the actions.
//
// Whoever wants a pause asks the member with the lowest host id, which coordinates. It grants one wish at a time,
// in the order in which they came: it tells all members to stop, and the asker, when all of them are quiet, that
// the pause is its own. When that one is done, maybe with another order of the ring, all members are told to go
// on, and the next wish is granted only when all of them do. Every message is repeated on Tick until it is
// answered, so loss and duplication only cost time.
//
// A pause that some host is not quiet for in time is given up, and all go on as they were. A new order or cost is only
// taken from who holds the pause, when everything stands still. The end of the world ends everything. The package
// does not know why somebody wants a pause, nor what it is that stops.
package pause

import (
	"fmt"
	"slices"

	"gorun/rendezvous/wire"
)

// Event is what happened; exactly one field is set.
type Event struct {
	World   *World      // a world began
	Want    uint32      // this host wants a pause; the number is larger than those before
	Done    *Done       // a wish of this host is over
	Quiet   uint32      // nothing is under way here after Stop with that number
	Message *wire.Pause // from a peer
	Tick    bool        // time passed: repeat what was not answered
}

// World is whose pauses these are. One without members is none: the last one ended.
type World struct {
	Epoch   uint32
	Members []int // host ids
}

// Done ends a wish, whether it was granted or not.
type Done struct {
	Wish  uint32
	Order []int // host ids in another order; nil if the ring stays as it is
	Why   []string
	Cost  wire.Cost // of messages from now on; zero if it stays as it is
	Text  string    // the reason for another order, or cost
}

// Actions is what to do after an event, in the order of the fields.
type Actions struct {
	Go      *Go       // go on
	Stop    uint32    // begin nothing more, and report Quiet with this number
	Held    uint32    // the wish with this number is granted: everything stands still until Done
	Refused []Refusal // wishes that end without it
	Send    []Send    // may be lost
}

// Go ends a pause.
type Go struct {
	Number uint32
	Order  []int // of the ring from now on; nil if it stays as it is
	Why    []string
	Cost   wire.Cost // of messages from now on; zero if it stays as it is
	Text   string
}

// Refusal is why there is no pause for a wish.
type Refusal struct {
	Wish   uint32
	Reason string
}

// Send is a message for a peer.
type Send struct {
	To      int
	Message *wire.Pause
}

// phase is how far a host or a pause is.
type phase int

const (
	going phase = iota
	stopping
	still
)

// wish is one of this host's.
type wish struct {
	held bool
	done *Done
}

// request is somebody's wish, as the coordinator knows it.
type request struct {
	from int
	wish uint32
}

// turn is the pause that the coordinator has under way.
type turn struct {
	request
	number  uint32
	phase   phase // going: it ends
	told    map[int]bool
	ticks   int
	outcome wire.Pause // going: order, cost and reasons
}

// maxRequests bounds what is asked for; nobody has that many reasons.
const maxRequests = 1024

// Machine is one host's view.
type Machine struct {
	self     int
	patience int

	epoch   uint32 // 0: there is no world
	members []int  // ascending; the first coordinates
	number  uint32 // of the last pause that this host knows
	phase   phase
	wishes  map[uint32]*wish

	// The coordinator's.
	queue []request
	turn  *turn
	last  uint32 // number of a pause

	a     *Actions
	inner []*wire.Pause // to itself
}

// New returns the machine of a host. A pause may take as many ticks to begin as patience says.
func New(self, patience int) *Machine {
	return &Machine{self: self, patience: patience, wishes: map[uint32]*wish{}}
}

// Busy reports whether there is anything that a Tick could repeat.
func (m *Machine) Busy() bool { return m.epoch != 0 && (len(m.wishes) > 0 || m.turn != nil) }

// Number returns which pause this host is in, 0 if it is in none.
func (m *Machine) Number() uint32 {
	if m.phase == going {
		return 0
	}
	return m.number
}

// Step takes one event and returns what to do about it.
func (m *Machine) Step(ev Event) (Actions, error) {
	var a Actions
	m.a = &a
	var err error
	switch {
	case ev.World != nil:
		m.begin(*ev.World)
	case ev.Want != 0:
		m.want(ev.Want)
	case ev.Done != nil:
		if w := m.wishes[ev.Done.Wish]; w != nil && w.done == nil {
			w.done = ev.Done
			m.repeatWish(ev.Done.Wish, w)
		}
	case ev.Quiet != 0:
		if m.phase == stopping && ev.Quiet == m.number {
			m.phase = still
			m.tell(m.members[0], &wire.Pause{Verb: wire.PauseQuiet, Number: m.number})
		}
	case ev.Message != nil:
		err = m.check(ev.Message)
		if err == nil && ev.Message.Epoch == m.epoch && m.epoch != 0 {
			m.receive(ev.Message)
		}
	case ev.Tick:
		m.tick()
	}
	for len(m.inner) > 0 {
		msg := m.inner[0]
		m.inner = m.inner[1:]
		m.receive(msg)
	}
	m.a = nil
	return a, err
}

// begin takes a world. Nothing of the one before it counts.
func (m *Machine) begin(w World) {
	for _, n := range m.own() {
		if m.wishes[n].done == nil {
			m.a.Refused = append(m.a.Refused, Refusal{n, "the world ended"})
		}
	}
	clear(m.wishes)
	m.epoch, m.members = w.Epoch, slices.Sorted(slices.Values(w.Members))
	m.number, m.phase = 0, going
	m.queue, m.turn, m.last = nil, nil, 0
	if !slices.Contains(m.members, m.self) {
		m.epoch, m.members = 0, nil
	}
}

func (m *Machine) want(n uint32) {
	if m.epoch == 0 {
		m.a.Refused = append(m.a.Refused, Refusal{n, "there is no world"})
		return
	}
	m.wishes[n] = &wish{}
	m.repeatWish(n, m.wishes[n])
}

// own returns the numbers of this host's wishes in order.
func (m *Machine) own() []uint32 {
	var all []uint32
	for n := range m.wishes {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// repeatWish tells the coordinator how it is with a wish.
func (m *Machine) repeatWish(n uint32, w *wish) {
	switch {
	case w.done != nil:
		m.tell(m.members[0], &wire.Pause{Verb: wire.PauseDone, Wish: n, Order: w.done.Order, Why: w.done.Why, Cost: w.done.Cost, Text: w.done.Text})
	case !w.held:
		m.tell(m.members[0], &wire.Pause{Verb: wire.PauseAsk, Wish: n})
	}
}

func (m *Machine) tick() {
	if m.epoch == 0 {
		return
	}
	for _, n := range m.own() {
		m.repeatWish(n, m.wishes[n])
	}
	t := m.turn
	if t == nil {
		return
	}
	if t.phase == stopping {
		if t.ticks++; t.ticks > m.patience {
			m.tell(t.from, &wire.Pause{Verb: wire.PauseOver, Wish: t.wish, Text: fmt.Sprintf("host ids %v do not stop", m.untold())})
			m.end(wire.Pause{})
			return
		}
	}
	m.repeatTurn()
}

// untold returns the members that have not answered in the present phase of the pause.
func (m *Machine) untold() []int {
	var out []int
	for _, id := range m.members {
		if !m.turn.told[id] {
			out = append(out, id)
		}
	}
	return out
}

// repeatTurn says what has not been answered in the present phase of the pause.
func (m *Machine) repeatTurn() {
	t := m.turn
	if t.phase == still {
		m.tell(t.from, &wire.Pause{Verb: wire.PauseHeld, Wish: t.wish})
		return
	}
	for _, id := range m.untold() {
		msg := t.outcome
		msg.Verb, msg.Number = wire.PauseGo, t.number
		if t.phase == stopping {
			msg = wire.Pause{Verb: wire.PauseStop, Number: t.number}
		}
		m.tell(id, &msg)
	}
}

// tell sends a message, to this host itself without the network.
func (m *Machine) tell(to int, msg *wire.Pause) {
	msg.From, msg.Epoch = m.self, m.epoch
	if to == m.self {
		m.inner = append(m.inner, msg)
		return
	}
	m.a.Send = append(m.a.Send, Send{to, msg})
}

// check refuses what no peer says. Peers hold the job's key, but their numbers are checked.
func (m *Machine) check(msg *wire.Pause) error {
	if m.epoch == 0 || msg.Epoch != m.epoch {
		return nil // nothing holds any more of an older world, and of a later one it will be said again
	}
	if !slices.Contains(m.members, msg.From) {
		return fmt.Errorf("pause epoch %d: host id %d is not a member", m.epoch, msg.From)
	}
	if msg.Order != nil && !slices.Equal(slices.Sorted(slices.Values(msg.Order)), m.members) {
		return fmt.Errorf("pause epoch %d: ring %v is not an order of hosts %v", m.epoch, msg.Order, m.members)
	}
	return nil
}

func (m *Machine) receive(msg *wire.Pause) {
	switch msg.Verb {
	case wire.PauseAsk, wire.PauseDone, wire.PauseQuiet, wire.PauseGone:
		if m.self == m.members[0] {
			m.coordinate(msg)
		}
		return
	}
	if msg.From != m.members[0] {
		return
	}
	switch msg.Verb {
	case wire.PauseStop:
		switch {
		case msg.Number > m.number && m.phase == going:
			m.number, m.phase = msg.Number, stopping
			m.a.Stop = msg.Number
		case msg.Number == m.number && m.phase == still:
			m.tell(msg.From, &wire.Pause{Verb: wire.PauseQuiet, Number: m.number})
		}
	case wire.PauseGo:
		switch {
		case msg.Number == m.number && m.phase != going:
			m.phase = going
			m.a.Go = &Go{msg.Number, msg.Order, msg.Why, msg.Cost, msg.Text}
		case msg.Number > m.number && m.phase == going:
			m.number = msg.Number // it was given up before this host heard of it
		}
		if msg.Number <= m.number {
			m.tell(msg.From, &wire.Pause{Verb: wire.PauseGone, Number: msg.Number})
		}
	case wire.PauseHeld:
		switch w := m.wishes[msg.Wish]; {
		case w == nil:
			m.tell(msg.From, &wire.Pause{Verb: wire.PauseDone, Wish: msg.Wish})
		case w.done != nil:
			m.repeatWish(msg.Wish, w)
		case !w.held:
			w.held = true
			m.a.Held = msg.Wish
		}
	case wire.PauseOver:
		if w := m.wishes[msg.Wish]; w != nil {
			delete(m.wishes, msg.Wish)
			if w.done == nil {
				m.a.Refused = append(m.a.Refused, Refusal{msg.Wish, msg.Text})
			}
		}
	}
}

// coordinate takes what members say to the coordinator.
func (m *Machine) coordinate(msg *wire.Pause) {
	r, t := request{msg.From, msg.Wish}, m.turn
	switch msg.Verb {
	case wire.PauseAsk:
		switch {
		case t != nil && t.request == r:
			if t.phase == still {
				m.repeatTurn()
			}
		case !slices.Contains(m.queue, r) && len(m.queue) < maxRequests:
			m.queue = append(m.queue, r)
			m.next()
		}
	case wire.PauseDone:
		m.queue = slices.DeleteFunc(m.queue, func(q request) bool { return q == r })
		m.tell(r.from, &wire.Pause{Verb: wire.PauseOver, Wish: r.wish})
		if t != nil && t.request == r && t.phase != going {
			outcome := wire.Pause{Order: msg.Order, Why: msg.Why, Cost: msg.Cost, Text: msg.Text}
			if t.phase == stopping {
				outcome = wire.Pause{} // not everything stands still
			}
			m.end(outcome)
		}
	case wire.PauseQuiet:
		if t != nil && t.phase == stopping && msg.Number == t.number {
			t.told[msg.From] = true
			if len(m.untold()) == 0 {
				t.phase = still
				m.repeatTurn()
			}
		}
	case wire.PauseGone:
		if t != nil && t.phase == going && msg.Number == t.number {
			t.told[msg.From] = true
			if len(m.untold()) == 0 {
				m.turn = nil
				m.next()
			}
		}
	}
}

// next begins a pause for whoever has waited longest.
func (m *Machine) next() {
	if m.turn != nil || len(m.queue) == 0 {
		return
	}
	m.last++
	m.turn = &turn{request: m.queue[0], number: m.last, phase: stopping, told: map[int]bool{}}
	m.queue = m.queue[1:]
	m.repeatTurn()
}

// end lets everybody go on.
func (m *Machine) end(outcome wire.Pause) {
	m.turn.phase, m.turn.told, m.turn.outcome = going, map[int]bool{}, outcome
	m.repeatTurn()
}
