package verbs

import (
	"errors"
	"math/rand/v2"
	"testing"

	"gorun/contrib/must"
)

// side is one end of a simulated queue pair.
type side struct {
	flow          flow
	send, receive []byte
	peer          *side
	wire          []message    // posted, not delivered
	acks          int          // delivered, not completed
	arrivals      []Completion // receives that can be polled
	receives      int          // posted
	out, in       uint64       // bytes written and read so far
	copied        message      // what has been copied and is not posted, if it has bytes
}

type message struct {
	at, n int
	imm   uint32
}

func octet(position uint64) byte { return byte(position*2654435761>>13 ^ position) }

func (s *side) post(t *testing.T, at, n int) {
	if len(s.wire)+s.acks == s.flow.depth {
		t.Fatal("the queue overflows")
	}
	s.wire = append(s.wire, message{at, n, s.flow.send(n)})
}

// steps lists the events that can happen next at one end; each returns false if it cannot.
var steps = []func(t *testing.T, s *side, rng *rand.Rand, total uint64) bool{
	func(t *testing.T, s *side, rng *rand.Rand, total uint64) bool { // write
		if c := s.copied; c.n > 0 {
			s.flow.reserved, s.copied = 0, message{}
			s.post(t, c.at, c.n)
			return true
		}
		at, room := s.flow.room()
		n := int(min(uint64(room), total-s.out))
		if n == 0 {
			return false
		}
		n = 1 + rng.IntN(n)
		for i := range n {
			s.send[at+i] = octet(s.out + uint64(i))
		}
		s.out += uint64(n)
		s.flow.reserved, s.copied = 1, message{at: at, n: n}
		return true
	},
	func(t *testing.T, s *side, _ *rand.Rand, _ uint64) bool { // deliver
		if len(s.wire) == 0 {
			return false
		}
		m := s.wire[0]
		if s.peer.receives == 0 {
			t.Fatal("the peer has no receive posted")
		}
		s.wire = s.wire[1:]
		s.peer.receives--
		copy(s.peer.receive[m.at:m.at+m.n], s.send[m.at:])
		s.peer.arrivals = append(s.peer.arrivals, Completion{Receive: true, Bytes: m.n, Imm: m.imm})
		s.acks++
		return true
	},
	func(t *testing.T, s *side, _ *rand.Rand, _ uint64) bool { // a write completes
		if s.acks == 0 {
			return false
		}
		s.acks--
		must.Do(t, s.flow.complete(Completion{}))
		if s.flow.mustReport() {
			s.post(t, 0, 0)
		}
		return true
	},
	func(t *testing.T, s *side, rng *rand.Rand, _ uint64) bool { // receives complete
		if len(s.arrivals) == 0 {
			return false
		}
		n := 1 + rng.IntN(len(s.arrivals))
		for _, c := range s.arrivals[:n] {
			must.Do(t, s.flow.complete(c))
		}
		s.arrivals = s.arrivals[n:]
		s.receives += n
		if s.flow.mustReport() {
			s.post(t, 0, 0)
		}
		return true
	},
	func(t *testing.T, s *side, rng *rand.Rand, _ uint64) bool { // read
		at, n := s.flow.readable()
		if n == 0 {
			return false
		}
		n = 1 + rng.IntN(n)
		for i := range n {
			if got, want := s.receive[at+i], octet(s.in+uint64(i)); got != want {
				t.Fatalf("byte %d is %d, want %d", s.in+uint64(i), got, want)
			}
		}
		s.in += uint64(n)
		s.flow.consume(n)
		if s.flow.mustReport() {
			s.post(t, 0, 0)
		}
		return true
	},
}

// Two ends move bytes whatever the order in which things happen: no byte is wrong or lost, no queue overflows, and
// neither waits for the other forever.
func TestFlowSimulated(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 27))
		size := Size{Ring: 1 + rng.IntN(64), Depth: 4 + rng.IntN(10)}
		if rng.IntN(4) == 0 {
			size = Size{Ring: maxRing >> rng.IntN(24), Depth: 4 + rng.IntN(maxDepth-3)}
			size.Ring = min(max(size.Ring, 1), 4096)
		}
		ends := [2]*side{}
		for i := range ends {
			ends[i] = &side{flow: newFlow(size), send: make([]byte, size.Ring), receive: make([]byte, size.Ring), receives: size.Depth}
		}
		ends[0].peer, ends[1].peer = ends[1], ends[0]
		totals := [2]uint64{uint64(rng.IntN(8 * size.Ring)), uint64(rng.IntN(8 * size.Ring))}
		bias := [...]int{rng.IntN(len(steps)), rng.IntN(2)} // a step that is rare in this run
		for stuck := 0; ends[0].in < totals[1] || ends[1].in < totals[0]; {
			step, end := rng.IntN(len(steps)), rng.IntN(2)
			if step == bias[0] && end == bias[1] && stuck < 100 && rng.IntN(20) > 0 {
				stuck++
				continue
			}
			if steps[step](t, ends[end], rng, totals[end]) {
				stuck = 0
			} else if stuck++; stuck > 10_000 {
				t.Fatalf("seed %d: nothing happens any more: %+v %+v", seed, ends[0].flow, ends[1].flow)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// The counters in immediate data wrap around.
func TestFlowCountsOn(t *testing.T) {
	size := Size{Ring: maxRing, Depth: maxDepth}
	a, b := newFlow(size), newFlow(size)
	for i := range 600 {
		_, n := a.room()
		if n == 0 {
			t.Fatalf("no room in round %d", i)
		}
		imm := a.send(n)
		must.Do(t, errors.Join(a.complete(Completion{}), b.complete(Completion{Receive: true, Bytes: n, Imm: imm})))
		b.consume(n)
		must.Do(t, errors.Join(a.complete(Completion{Receive: true, Imm: b.send(0)}), b.complete(Completion{})))
		a.consume(0)
		if a.consumed != a.written || a.granted != a.sent {
			t.Fatalf("round %d: %d of %d bytes, %d of %d messages", i, a.consumed, a.written, a.granted, a.sent)
		}
		if b.unposted() < 2 { // a reports, as its Conn would
			must.Do(t, errors.Join(b.complete(Completion{Receive: true, Imm: a.send(0)}), a.complete(Completion{})))
		}
	}
}

func TestFlowRefuses(t *testing.T) {
	size := Size{Ring: 64, Depth: 4}
	for name, all := range map[string][]Completion{
		"a write nobody posted":     {{}},
		"more than the ring holds":  {{Receive: true, Bytes: 64}, {Receive: true, Bytes: 1}},
		"bytes that were not sent":  {{Receive: true, Imm: 1}},
		"messages that were not":    {{Receive: true, Imm: 1 << byteBits}},
		"a negative number of them": {{Receive: true, Bytes: -1}},
	} {
		f := newFlow(size)
		var err error
		for _, c := range all {
			err = f.complete(c)
		}
		if !errors.Is(err, errFlow) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f := newFlow(size)
	if err := f.complete(Completion{Status: 12, Receive: true, Bytes: 5}); err == nil || f.arrived != 0 {
		t.Errorf("a failed receive: %v, %d bytes arrived", err, f.arrived)
	}
}
