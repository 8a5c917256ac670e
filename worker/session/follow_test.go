package session_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/contrib/must"
	"gorun/worker/session"
)

// group submits a head and what follows it: each an allreduce of 4 floats, with a signature of the whole.
func (c *client) group(signature int32, name string, handles ...uint32) {
	c.t.Helper()
	head := allreduce(handles[0], c.region, 4, name)
	head.root = signature
	for i, handle := range handles[1:] {
		o := allreduce(handle, c.region, 4, fmt.Sprint(name, ".part", i+2))
		o.inOffset, o.outOffset, o.root, o.splits = uint64(64*(i+1)), uint64(64*(i+1)), signature, []int32{-1}
		c.send(o.encode())
		head.splits = append(head.splits, int32(handle))
	}
	c.send(head.encode())
}

// follow submits an allreduce that waits for its head.
func (c *client) follow(handle uint32, name string) {
	o := allreduce(handle, c.region, 4, name)
	o.splits = []int32{-1}
	c.send(o.encode())
}

// ends receives the end of operations in any order, and returns the texts of their errors.
func (c *client) ends(handles ...uint32) map[uint32]string {
	c.t.Helper()
	texts := map[uint32]string{}
	for range handles {
		b, _ := c.receive()
		c.note(b, texts)
	}
	for _, handle := range handles {
		if _, ended := texts[handle]; !ended {
			c.t.Fatalf("operations %v ended instead of %v", texts, handles)
		}
	}
	return texts
}

// note adds the end of an operation to texts.
func (c *client) note(b []byte, texts map[uint32]string) {
	c.t.Helper()
	switch le.Uint32(b) {
	case 67: // FAIL
		texts[le.Uint32(b[4:])] = string(b[20:])
	case 68: // COMPLETE
		texts[le.Uint32(b[4:])] = string(b[len(b)-int(le.Uint32(b[40:])):])
	default:
		c.t.Fatalf("message %x", b)
	}
}

// What follows an operation ends with it, on ranks that differ in it too, and nothing of it is left in flight.
func TestFollowersEndWithTheirHead(t *testing.T) {
	h := startReal(t, 2).begin()
	ranks := joinAll(t, h, below(2))
	for _, c := range ranks {
		for i := range 16 {
			c.memory[64*i+3] = 0x40 // 2.0
		}
	}
	for range 3 {
		ranks[0].group(1, "g", 1, 2, 3)
		ranks[1].group(1, "g", 7, 8, 9)
		for i, handles := range [][]uint32{{1, 2, 3}, {7, 8, 9}} {
			for handle, text := range ranks[i].ends(handles...) {
				if text != "" {
					t.Errorf("rank %d, operation %d: %s", i, handle, text)
				}
			}
		}
		ranks[0].group(1, "g", 1, 2, 3)
		ranks[1].group(2, "g", 7)
		first := ""
		for i, handles := range [][]uint32{{1, 2, 3}, {7}} {
			for handle, text := range ranks[i].ends(handles...) {
				if first == "" {
					first = text
				}
				if text == "" || text != first || !strings.Contains(text, "allreduce \"g\"") {
					t.Errorf("rank %d, operation %d: %q", i, handle, text)
				}
			}
		}
	}
}

// A head that is refused, because of what follows it or by itself, takes its followers with it.
func TestRefusedHead(t *testing.T) {
	h := start(t, 1).begin()
	c := join(t, h.name, 0)
	region, _ := c.alloc(1 << 20)
	for what, change := range map[string]func(*operation){
		"no operation of this number": func(o *operation) { o.splits = append(o.splits, 99) },
		"itself":                      func(o *operation) { o.splits = append(o.splits, 1) },
		"one of them twice":           func(o *operation) { o.splits = append(o.splits, 2) },
		"no name":                     func(o *operation) { o.name = "" },
		"no such region":              func(o *operation) { o.in = 77 },
	} {
		for _, handle := range []uint32{2, 3} {
			c.follow(handle, fmt.Sprint("part", handle))
		}
		head := allreduce(1, region, 4, "g")
		head.splits = []int32{2, 3}
		change(&head)
		c.send(head.encode())
		for handle, text := range c.ends(1, 2, 3) {
			if text == "" {
				t.Errorf("%s: operation %d succeeded", what, handle)
			}
		}
	}
	if h.engine.pending() != 0 {
		t.Error("something reached the engine")
	}
}

// Held parts wait for what their head waits for; and of what is given up each rank hears why.
func TestFollowersOfWhatIsGivenUp(t *testing.T) {
	h := startReal(t, 2).begin()
	c := join(t, h.name, 0)
	region, _ := c.alloc(1 << 20)
	c.group(1, "g", 1, 2, 3)
	c.send(allreduce(4, region, 4, "alone").encode())
	c.send(allreduce(5, region, 4, "fresh").encode())
	send := operation{handle: 6, kind: collective.Send, dtype: kernel.Float32, in: region, out: none, inBytes: 16, dims: []int64{4}, root: 1, name: "s"}
	c.send(send.encode())
	why := map[session.Subject]error{}
	must.Soon(t, "all operations", func() bool {
		open := h.real.Pending(time.Now())
		all := append(open, h.server.Held(open)...)
		clear(why)
		for _, o := range all {
			if len(o.Missing) != 1 || !slices.Equal(o.Missing[0].Ranks, []int{1}) {
				t.Fatalf("%s waits for %v", o.Name, o.Missing)
			}
			why[session.Subject{Group: o.Group, Name: o.Name}] = errors.New("too long: " + o.Name)
		}
		return len(all) == 6 // "fresh" and the send, too
	})
	delete(why, session.Subject{Name: "fresh"})
	h.server.GiveUp(errors.New("in general"), why)
	for handle, text := range c.ends(1, 2, 3, 4, 6) {
		if want := map[uint32]string{1: "g", 2: "g.part2", 3: "g.part3", 4: "alone", 6: "s"}[handle]; text != "too long: "+want {
			t.Errorf("operation %d: %q", handle, text)
		}
	}
	if b, _ := c.receive(); le.Uint32(b) != 70 || !strings.Contains(string(b), "in general") {
		t.Errorf("received %q", b)
	}
	c.close()
}

// A rank that ends before it submits the head leaves nothing behind.
func TestFollowerWithoutHead(t *testing.T) {
	h := start(t, 1)
	for epoch := range uint32(3) {
		h.server.SetWorld(session.LocalWorld{Epoch: 1 + epoch, Size: 1, Hosts: 1, Places: []session.RankPlace{{CrossSize: 1}}})
		c := join(t, h.name, 0)
		c.alloc(1 << 30) // all that a rank may have
		c.follow(5, "x")
		c.send(words(8888, 0)) // there is no such message: the session ends
		c.ended()
		c.close()
	}
}

// What follows a head that is refused because too much is in flight fails with it.
func TestFollowersOfOneTooMany(t *testing.T) {
	h := startBounded(t, 1, 3).begin()
	c := join(t, h.name, 0)
	region, _ := c.alloc(1 << 20)
	for _, handle := range []uint32{1, 2, 3} {
		c.follow(handle, fmt.Sprint("part", handle))
	}
	head := allreduce(4, region, 4, "g")
	head.splits = []int32{1, 2, 3}
	c.send(head.encode())
	for handle, text := range c.ends(1, 2, 3, 4) {
		if !strings.Contains(text, "in flight already") {
			t.Errorf("operation %d: %q", handle, text)
		}
	}
	c.send(allreduce(5, region, 4, "x").encode())
	if text := c.ends(5)[5]; text != "" {
		t.Errorf("after that: %s", text)
	}
}

// What a rank began before it joins counts, although what follows a head is submitted later; then all are in a new round.
func TestFollowersOfWhoJoins(t *testing.T) {
	h := startReal(t, 2).begin()
	ranks := joinAll(t, h, below(2))
	leave := operation{handle: 77, kind: collective.Join, in: none, out: none, name: "join"}
	for round := range 60 {
		fails := round%10 == 9 // the head: what follows it is not owed any more
		for rank, c := range ranks {
			for i := range 3 {
				c.memory[64*i+2], c.memory[64*i+3] = 0, 0x40 // 2.0
			}
			if rank == 1 && round%2 == 0 { // the other rank has joined for sure
				must.Soon(t, "the join", func() bool { return len(h.real.Pending(time.Now())) > 1 })
			}
			signature := int32(1)
			if fails {
				signature += int32(rank)
			}
			c.group(signature, "g", 1, 2, 3)
			c.send(leave.encode())
		}
		for rank, c := range ranks {
			for handle, text := range c.ends(1, 2, 3, 77) {
				if (text != "") != (fails && handle != 77) {
					t.Fatalf("round %d, rank %d, operation %d: %q", round, rank, handle, text)
				}
			}
			for i := range 3 {
				if got := c.memory[64*i+2 : 64*i+4]; !fails && string(got) != "\x80\x40" { // 4.0
					t.Fatalf("round %d, rank %d, part %d is % x", round, rank, i, got)
				}
			}
		}
	}
}
