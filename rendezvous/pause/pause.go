// Package pause decides when all hosts of a world pause between two operations, and which host holds the pause. It is a
// pure state machine: events go in, actions come out; it does no I/O, has no clock and starts no goroutine. One
// goroutine drives it and performs the actions.
//
// A host that wants a pause asks the coordinator, which is the member with the lowest host id. The coordinator grants
// one request at a time, in order of arrival. It asks all members to stop; when all are quiet, the requester holds the
// pause. When the holder is done, perhaps with a new order of the ring, all members continue, and the next request is
// granted only after all of them have. Every message is repeated on Tick until it is answered, so loss and duplication
// only cost time.
//
// If a host is not quiet in time, the pause is given up and all continue as before. Only the holder of a pause may
// change the order, while every member is paused. The end of the world ends all pauses. The package knows
// neither why a pause is wanted nor what stops.
package pause

import (
	"fmt"
	"slices"

	"gorun/rendezvous/wire"
)

// Event is an input of the machine; exactly one field is set.
type Event struct {
	World   *WorldHosts // a world started
	Want    uint32      // this host wants a pause; numbers grow
	Done    *Done       // a request of this host is over
	Quiet   uint32      // nothing is under way here since the Stop with that number
	Message *wire.Pause // from a peer
	Tick    bool        // time passed: repeat what was not answered
}

// WorldHosts are the hosts of the world that pauses. None means that the last world ended.
type WorldHosts struct {
	Epoch   uint32
	Members []int // host ids
}

// Done ends a request, whether it was granted or not.
type Done struct {
	Request uint32
	Order   []int // host ids in a new order; nil to keep the ring
	Why     []string
	Text    string // the reason for the new order
}

// Actions are what to do after an event, in the order of the fields.
type Actions struct {
	Go      *Go       // continue
	Stop    uint32    // start nothing more, and report Quiet with this number
	Held    uint32    // the request with this number holds the pause until Done
	Refused []Refusal // requests that end without a pause
	Send    []Send    // may be lost
}

// Go ends a pause.
type Go struct {
	Number uint32
	Order  []int // of the ring from now on; nil to keep it
	Why    []string
	Text   string
}

// Refusal is the reason why a request gets no pause.
type Refusal struct {
	Request uint32
	Reason  string
}

// Send is a message for a peer.
type Send struct {
	To      int
	Message *wire.Pause
}

// phase is the progress of a host or a pause.
type phase int

const (
	going phase = iota
	stopping
	still
)

// ownRequest is a request of this host.
type ownRequest struct {
	held bool
	done *Done
}

// request is a host's request, as the coordinator knows it.
type request struct {
	from       int
	ownRequest uint32
}

// turn is the pause that the coordinator is conducting.
type turn struct {
	request
	number  uint32
	phase   phase // going: it is ending
	told    map[int]bool
	ticks   int
	outcome wire.Pause // going: order and reasons
}

// maxRequests bounds the queue; no world has as many reasons to pause.
const maxRequests = 1024

// Machine is the view of one host.
type Machine struct {
	self    int
	timeout int

	epoch       uint32 // 0 means that there is no world
	members     []int  // ascending; the first coordinates
	number      uint32 // the last pause this host has seen
	phase       phase
	ownRequests map[uint32]*ownRequest

	// State of the coordinator.
	queue []request
	turn  *turn
	last  uint32 // number of the last pause

	a     *Actions
	inner []*wire.Pause // messages to itself
}

// New returns the machine of a host. A pause that has not started after timeout ticks is given up.
func New(self, timeout int) *Machine {
	return &Machine{self: self, timeout: timeout, ownRequests: map[uint32]*ownRequest{}}
}

// Busy reports whether Tick could have anything to repeat.
func (m *Machine) Busy() bool { return m.epoch != 0 && (len(m.ownRequests) > 0 || m.turn != nil) }

// Number returns the pause this host is in, 0 for none.
func (m *Machine) Number() uint32 {
	if m.phase == going {
		return 0
	}
	return m.number
}

// Step handles one event and returns what to do about it.
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
		if w := m.ownRequests[ev.Done.Request]; w != nil && w.done == nil {
			w.done = ev.Done
			m.repeatRequest(ev.Done.Request, w)
		}
	case ev.Quiet != 0:
		if m.phase == stopping && ev.Quiet == m.number {
			m.phase = still
			m.send(m.members[0], &wire.Pause{Verb: wire.PauseQuiet, Number: m.number})
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

// begin adopts a world and drops all state of the previous one.
func (m *Machine) begin(w WorldHosts) {
	for _, n := range m.own() {
		if m.ownRequests[n].done == nil {
			m.a.Refused = append(m.a.Refused, Refusal{n, "the world ended"})
		}
	}
	clear(m.ownRequests)
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
	m.ownRequests[n] = &ownRequest{}
	m.repeatRequest(n, m.ownRequests[n])
}

// own returns the numbers of this host's requests, sorted.
func (m *Machine) own() []uint32 {
	var all []uint32
	for n := range m.ownRequests {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// repeatRequest sends the state of a request to the coordinator.
func (m *Machine) repeatRequest(n uint32, w *ownRequest) {
	switch {
	case w.done != nil:
		m.send(m.members[0], &wire.Pause{Verb: wire.PauseDone, Request: n, Order: w.done.Order, Why: w.done.Why, Text: w.done.Text})
	case !w.held:
		m.send(m.members[0], &wire.Pause{Verb: wire.PauseAsk, Request: n})
	}
}

func (m *Machine) tick() {
	if m.epoch == 0 {
		return
	}
	for _, n := range m.own() {
		m.repeatRequest(n, m.ownRequests[n])
	}
	t := m.turn
	if t == nil {
		return
	}
	if t.phase == stopping {
		if t.ticks++; t.ticks > m.timeout {
			m.send(t.from, &wire.Pause{Verb: wire.PauseOver, Request: t.ownRequest, Text: fmt.Sprintf("host ids %v do not stop", m.unanswered())})
			m.end(wire.Pause{})
			return
		}
	}
	m.repeatTurn()
}

// unanswered returns the members that have not answered in the present phase of the pause.
func (m *Machine) unanswered() []int {
	var out []int
	for _, id := range m.members {
		if !m.turn.told[id] {
			out = append(out, id)
		}
	}
	return out
}

// repeatTurn resends the message of the present phase to them.
func (m *Machine) repeatTurn() {
	t := m.turn
	if t.phase == still {
		m.send(t.from, &wire.Pause{Verb: wire.PauseHeld, Request: t.ownRequest})
		return
	}
	for _, id := range m.unanswered() {
		msg := t.outcome
		msg.Verb, msg.Number = wire.PauseGo, t.number
		if t.phase == stopping {
			msg = wire.Pause{Verb: wire.PauseStop, Number: t.number}
		}
		m.send(id, &msg)
	}
}

// send sends a message; one to this host itself does not use the network.
func (m *Machine) send(to int, msg *wire.Pause) {
	msg.From, msg.Epoch = m.self, m.epoch
	if to == m.self {
		m.inner = append(m.inner, msg)
		return
	}
	m.a.Send = append(m.a.Send, Send{to, msg})
}

// check rejects impossible messages. Peers hold the job's key, but their numbers are checked.
func (m *Machine) check(msg *wire.Pause) error {
	if m.epoch == 0 || msg.Epoch != m.epoch {
		return nil // an older world is obsolete, and a message about a later one will be repeated
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
			m.send(msg.From, &wire.Pause{Verb: wire.PauseQuiet, Number: m.number})
		}
	case wire.PauseGo:
		switch {
		case msg.Number == m.number && m.phase != going:
			m.phase = going
			m.a.Go = &Go{msg.Number, msg.Order, msg.Why, msg.Text}
		case msg.Number > m.number && m.phase == going:
			m.number = msg.Number // it was given up before this host heard about it
		}
		if msg.Number <= m.number {
			m.send(msg.From, &wire.Pause{Verb: wire.PauseGone, Number: msg.Number})
		}
	case wire.PauseHeld:
		switch w := m.ownRequests[msg.Request]; {
		case w == nil:
			m.send(msg.From, &wire.Pause{Verb: wire.PauseDone, Request: msg.Request})
		case w.done != nil:
			m.repeatRequest(msg.Request, w)
		case !w.held:
			w.held = true
			m.a.Held = msg.Request
		}
	case wire.PauseOver:
		if w := m.ownRequests[msg.Request]; w != nil {
			delete(m.ownRequests, msg.Request)
			if w.done == nil {
				m.a.Refused = append(m.a.Refused, Refusal{msg.Request, msg.Text})
			}
		}
	}
}

// coordinate handles members' messages as the coordinator.
func (m *Machine) coordinate(msg *wire.Pause) {
	r, t := request{msg.From, msg.Request}, m.turn
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
		m.send(r.from, &wire.Pause{Verb: wire.PauseOver, Request: r.ownRequest})
		if t != nil && t.request == r && t.phase != going {
			outcome := wire.Pause{Order: msg.Order, Why: msg.Why, Text: msg.Text}
			if t.phase == stopping {
				outcome = wire.Pause{} // some hosts are not paused
			}
			m.end(outcome)
		}
	case wire.PauseQuiet:
		if t != nil && t.phase == stopping && msg.Number == t.number {
			t.told[msg.From] = true
			if len(m.unanswered()) == 0 {
				t.phase = still
				m.repeatTurn()
			}
		}
	case wire.PauseGone:
		if t != nil && t.phase == going && msg.Number == t.number {
			t.told[msg.From] = true
			if len(m.unanswered()) == 0 {
				m.turn = nil
				m.next()
			}
		}
	}
}

// next starts a pause for the oldest request.
func (m *Machine) next() {
	if m.turn != nil || len(m.queue) == 0 {
		return
	}
	m.last++
	m.turn = &turn{request: m.queue[0], number: m.last, phase: stopping, told: map[int]bool{}}
	m.queue = m.queue[1:]
	m.repeatTurn()
}

// end lets all members continue.
func (m *Machine) end(outcome wire.Pause) {
	m.turn.phase, m.turn.told, m.turn.outcome = going, map[int]bool{}, outcome
	m.repeatTurn()
}
