package session_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gorun/collective"
	"gorun/contrib/must"
)

// companionOf is the HELLO of a companion.
func companionOf(rank int, token [32]byte) []byte {
	b := helloOf(rank, token)
	le.PutUint32(b[20:], 1)
	return b
}

// accompany opens a companion and waits for its welcome.
func accompany(t *testing.T, h *host, rank int) *client {
	t.Helper()
	c := dial(t, h.name)
	c.send(companionOf(rank, token(rank)))
	c.expect(65)
	return c
}

// sum submits a sum of n ones in a region of its own, and returns its memory.
func (c *client) sum(handle uint32, name string) []byte {
	c.t.Helper()
	region, memory := c.alloc(4096)
	le.PutUint32(memory, math.Float32bits(1))
	c.send(allreduce(handle, region, 1, name).encode())
	return memory
}

func (c *client) completes(handle uint32, memory []byte, want float32) {
	c.t.Helper()
	b, _ := c.expect(68)
	if le.Uint32(b[4:]) != handle || le.Uint32(b[8:]) != 0 || math.Float32frombits(le.Uint32(memory)) != want {
		c.t.Errorf("operation %d ended with code %d and %v, want %d and %v", le.Uint32(b[4:]), le.Uint32(b[8:]),
			math.Float32frombits(le.Uint32(memory)), handle, want)
	}
}

// gone waits for the end of a companion.
func (c *client) gone() {
	c.t.Helper()
	if b, _ := c.expect(70); !strings.Contains(string(b[16:]), "left the world") {
		c.t.Errorf("gone: %q", b[16:])
	}
	c.ended()
}

// TestCompanion: a process with two connections is one rank. Each has its own handles and memory, and gets the same
// about the world, apart from slots.
func TestCompanion(t *testing.T) {
	h := start(t, 2)
	h.begin()
	own, other := join(t, h.name, 0), join(t, h.name, 1)
	c := dial(t, h.name)
	c.send(companionOf(0, token(0)))
	b, _ := c.expect(65)
	if epoch, rank, flags := le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[36:]); epoch != 5 || rank != 0 || flags != 20 {
		t.Errorf("welcome to epoch %d as rank %d with flags %d", epoch, rank, flags)
	}
	for round := range uint32(3) { // handles and regions of the same numbers
		x, y := own.sum(7, "x"), c.sum(7, "y")
		theirs := other.sum(round, "y")
		c.completes(7, y, 2)
		other.completes(round, theirs, 2)
		theirs = other.sum(round, "x")
		own.completes(7, x, 2)
		other.completes(round, theirs, 2)
	}
	// Its goodbye ends only what is its own.
	c.send(words(6, 0))
	c.expect(69)
	c.close()
	x, y := own.sum(8, "x"), other.sum(8, "x")
	own.completes(8, x, 2)
	other.completes(8, y, 2)
	if left := h.engine.gone(); len(left) > 0 {
		t.Errorf("ranks %v left", left)
	}
	accompany(t, h, 0)
}

// TestCompanionEndsWithFollowersOpen: what follows an operation that the daemon has counts, and so does a JOIN of the
// session after it. What follows nothing yet is forgotten.
func TestCompanionEndsWithFollowersOpen(t *testing.T) {
	for _, goodbye := range []bool{false, true} {
		t.Run(fmt.Sprint("goodbye ", goodbye), func(t *testing.T) { companionEndsWithFollowersOpen(t, goodbye) })
	}
}

func companionEndsWithFollowersOpen(t *testing.T, goodbye bool) {
	h := startReal(t, 2)
	h.begin()
	own, other := join(t, h.name, 0), join(t, h.name, 1)
	region, memory := other.alloc(1 << 20)
	before := arenas(t)
	for round := range 3 {
		c := accompany(t, h, 0)
		mine, given := c.alloc(1 << 20)
		for i := range 4 {
			given[64*i+3], memory[64*i+2], memory[64*i+3] = 0x40, 0, 0x40 // 2.0
		}
		headless := allreduce(9, mine, 4, "headless")
		headless.splits = []int32{-1}
		c.send(headless.encode())
		c.group(mine, 1, "g", 1, 2, 3)
		if goodbye {
			c.send(words(6, 0))
		}
		must.Do(t, unix.Shutdown(c.fd, unix.SHUT_WR))
		c.ended()
		leave := operation{handle: 77, kind: collective.Join, in: none, out: none, name: "join"}
		if round == 2 {
			own.send(leave.encode())
			must.Soon(t, "the join", func() bool { return len(h.real.Pending(time.Now())) > 1 })
		}
		other.group(region, 1, "g", 7, 8, 9)
		for handle, text := range other.ends(7, 8, 9) {
			if text != "" {
				t.Errorf("round %d, operation %d: %s", round, handle, text)
			}
		}
		for i := range 3 {
			if got := memory[64*i+2 : 64*i+4]; string(got) != "\x80\x40" { // 4.0
				t.Errorf("round %d: part %d is % x", round, i, got)
			}
		}
		if round == 2 {
			other.send(leave.encode())
			for _, rank := range []*client{own, other} {
				if text := rank.ends(77)[77]; text != "" {
					t.Errorf("join: %s", text)
				}
			}
		}
	}
	must.Soon(t, "its memory is free", func() bool { return arenas(t) == before+3 }) // the mappings of the clients
	for range 4 {
		accompany(t, h, 0) // as many as there may be
	}
}

// TestCompanionEndsWithSession, however that ends.
func TestCompanionEndsWithSession(t *testing.T) {
	for _, end := range []func(own *client){
		func(own *client) { own.send(words(6, 0)); own.expect(69) },
		func(own *client) { own.close() },
		func(own *client) { own.send(words(99, 0)) },
	} {
		h := start(t, 1)
		h.begin()
		own, c, second := join(t, h.name, 0), accompany(t, h, 0), accompany(t, h, 0)
		end(own)
		c.gone()
		second.gone()
		must.Soon(t, "the rank has left once", func() bool { return slices.Equal(h.engine.gone(), []int{0}) })
		late := dial(t, h.name)
		late.send(companionOf(0, token(0)))
		if b, _ := late.expect(67); !strings.Contains(string(b[20:]), "no session") {
			t.Errorf("refused: %q", b[20:])
		}
		late.ended()
		h.stop()
	}
}

// TestCompanionWaitsForWorld: one that comes while its session waits for the world, the first or a later one, waits
// with it.
func TestCompanionWaitsForWorld(t *testing.T) {
	h := start(t, 1)
	own, c := dial(t, h.name), dial(t, h.name)
	own.send(helloOf(0, token(0)))
	must.Soon(t, "connected", func() bool { return h.server.Connected(0) })
	c.send(companionOf(0, token(0)))
	must.Soon(t, "both wait", func() bool { return len(h.wanted) == 2 })
	if len(h.new) != 1 {
		t.Errorf("%d processes wait for their first world", len(h.new))
	}
	h.begin()
	for _, x := range []*client{c, own} {
		x.expect(65)
		x.send(words(6, 0))
		x.expect(69)
	}
	own = dial(t, h.name)
	own.send(helloOf(0, token(0)))
	if got := <-h.rejoined; got.epoch != 5 {
		t.Errorf("waits for a world after that of epoch %d", got.epoch)
	}
	c = dial(t, h.name)
	c.send(companionOf(0, token(0)))
	c.send(words(2, 1, 64, 0)) // too early
	if b, _ := c.expect(70); !strings.Contains(string(b[16:]), "before the world") {
		t.Errorf("gone: %q", b[16:])
	}
	c.ended()
	if len(h.rejoined) > 0 {
		t.Error("the companion counts as a process that waits for a world")
	}
}

func TestCompanionRefused(t *testing.T) {
	h := start(t, 2)
	h.begin()
	join(t, h.name, 0)
	wrong := dial(t, h.name)
	wrong.send(companionOf(0, token(1)))
	wrong.ended() // without a word
	for range 4 {
		accompany(t, h, 0)
	}
	c := dial(t, h.name)
	c.send(companionOf(0, token(0)))
	if b, _ := c.expect(67); !strings.Contains(string(b[20:]), "4 companions") {
		t.Errorf("refused: %q", b[20:])
	}
	c.ended()
}

// TestCompanionKinds: a companion takes no part in what ranks do in a common order.
func TestCompanionKinds(t *testing.T) {
	h := start(t, 1)
	h.begin()
	join(t, h.name, 0)
	c := accompany(t, h, 0)
	for _, o := range []operation{
		{handle: 1, kind: collective.Join, in: none, out: none, name: "join"},
		{handle: 2, kind: collective.AddGroup, in: none, out: none, name: "group", splits: []int32{0}},
		{handle: 3, kind: collective.RemoveGroup, root: 1, in: none, out: none, name: "group"},
	} {
		c.send(o.encode())
		if b, _ := c.expect(67); le.Uint32(b[4:]) != o.handle || !strings.Contains(string(b[20:]), "companion") {
			t.Errorf("operation %d: %q", o.handle, b[20:])
		}
	}
	memory := c.sum(4, "x")
	c.completes(4, memory, 1)
}

// TestCompanionSaysWhyItLeft: an error that a companion had last is why its rank leaves.
func TestCompanionSaysWhyItLeft(t *testing.T) {
	for _, first := range []bool{true, false} { // the companion ends before its session, or with it
		h := start(t, 1)
		h.begin()
		own, c := join(t, h.name, 0), accompany(t, h, 0)
		c.send(operation{handle: 1, kind: collective.Allreduce, in: none, out: none, dims: []int64{1}, name: "x"}.encode())
		c.expect(67)
		if first {
			c.send(words(6, 0))
			c.expect(69)
			c.close()
		}
		if why := whyLeft(t, h, own); !strings.Contains(why, "element type") {
			t.Errorf("left since %q", why)
		}
		h.stop()
	}
}
