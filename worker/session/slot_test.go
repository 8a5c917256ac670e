package session_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/contrib/must"
	"gorun/worker/session"
)

// beginHere commits a world of this host alone.
func (h *host) beginHere() *host {
	w := session.LocalWorld{Epoch: 7, Size: h.engine.size, Hosts: 1, Host: "host1"}
	for rank := range h.engine.size {
		w.Places = append(w.Places, session.RankPlace{Process: rank, Rank: rank, LocalRank: rank, CrossSize: 1})
	}
	h.server.SetWorld(w)
	return h
}

// slotClient is a rank that knows slots.
type slotClient struct {
	*client
	rank  int
	slots []byte
	next  uint32
}

func startSlots(t *testing.T, size int) (*host, []*slotClient) {
	h := start(t, size).beginHere()
	var ranks []*slotClient
	for rank := range size {
		ranks = append(ranks, joinSlots(t, h, rank))
	}
	return h, ranks
}

func joinSlots(t *testing.T, h *host, rank int) *slotClient {
	t.Helper()
	c := greet(t, h.name, rank)
	if b, _ := c.expect(65); le.Uint32(b[36:]) != 30 {
		t.Fatalf("rank %d: flags %d of welcome, want 30", rank, le.Uint32(b[36:]))
	}
	x := &slotClient{client: c, rank: rank}
	c.alloc(1 << 20)
	c.send(words(8, 0))
	b, fd := c.expect(8)
	x.slots = c.mmap(fd, int(le.Uint64(b[8:])), unix.PROT_READ|unix.PROT_WRITE)
	return x
}

// submit sends an allreduce, with or without the wish for a slot.
func (c *slotClient) submit(name string, n int, slot bool) {
	c.next++
	o := allreduce(c.next, c.region, n, name)
	b := o.encode()
	if slot {
		b[8] |= 0x80
	}
	c.send(b)
}

// ended returns the slot that a completion brings.
func (c *slotClient) slot() uint64 {
	c.t.Helper()
	b, _ := c.expect(68)
	if le.Uint32(b[8:]) != 0 {
		return 0
	}
	return le.Uint64(b[16:])
}

func (c *slotClient) word(at uint64) *uint64 { return (*uint64)(unsafe.Pointer(&c.slots[at])) }
func (c *slotClient) flag(place, at int) *uint32 {
	return (*uint32)(unsafe.Pointer(&c.slots[64*place+at]))
}

// all submits for all ranks and returns the slots they were given.
func all(ranks []*slotClient, name string, n int, slot func(rank int) bool) []uint64 {
	for _, c := range ranks {
		c.submit(name, n, slot(c.rank))
	}
	var got []uint64
	for _, c := range ranks {
		got = append(got, c.slot())
	}
	return got
}

func always(int) bool { return true }

func TestNoSlot(t *testing.T) {
	_, ranks := startSlots(t, 2)
	for i, test := range []struct {
		n    int
		slot func(int) bool
	}{
		{16, func(rank int) bool { return rank == 0 }},
		{16, func(int) bool { return false }},
		{16385, always}, // more than 64 KiB
	} {
		name := fmt.Sprint(i)
		for range 3 { // a rank's wish of last time does not count
			if got := all(ranks, name, test.n, test.slot); got[0] != 0 || got[1] != 0 {
				t.Errorf("%d: slots %v, want none", i, got)
			}
		}
	}
	// The wish must come from all ranks for the same use.
	all(ranks, "x", 16, func(rank int) bool { return rank == 0 })
	if got := all(ranks, "x", 16, func(rank int) bool { return rank == 1 }); got[0] != 0 || got[1] != 0 {
		t.Errorf("wishes for different uses: %v", got)
	}
	if got := all(ranks, "x", 16, always); got[0] == 0 || got[0] != got[1] {
		t.Errorf("both wish: %v", got)
	}
	// No slot comes with an error, and there may be one afterwards.
	ranks[0].submit("y", 16, true)
	o := allreduce(99, ranks[1].region, 16, "y")
	o.dtype = 5
	ranks[1].send(o.encode())
	for _, c := range ranks {
		if b, _ := c.expect(68); le.Uint32(b[8:]) != uint32(collective.CodeMismatch) || le.Uint64(b[16:]) != 0 {
			t.Errorf("mismatch: code %d, slot %d", le.Uint32(b[8:]), le.Uint64(b[16:]))
		}
	}
	if got := all(ranks, "y", 16, always); got[0] == 0 || got[0] != got[1] {
		t.Errorf("after an error: %v", got)
	}
}

func TestSlotOfWhoLeaves(t *testing.T) {
	h, ranks := startSlots(t, 3)
	at := all(ranks, "x", 16, always)[0]
	// Rank 1 sleeps in the slot and is woken when rank 0 dies.
	atomic.StoreUint64(ranks[1].word(at+64), 2)
	now := time.Now()
	stalls := h.server.Waiting(now)
	if len(stalls) != 1 || stalls[0].Name != "x" || fmt.Sprint(stalls[0].Missing) != "[{host1 [0 2]}]" {
		t.Errorf("waiting: %+v", stalls)
	}
	if sums := fmt.Sprint(h.server.Sums(9), h.server.Sums(0)); sums != "[{x 64 [0 1 2] [0 1 0]}] []" {
		t.Errorf("sums: %s", sums)
	}
	if again := h.server.Waiting(now.Add(time.Hour)); len(again) != 1 || !again[0].Since.Equal(now) {
		t.Errorf("an hour later: %+v", again)
	}
	atomic.StoreUint32(ranks[1].flag(1, 4), 1)
	ranks[0].close()
	ranks[1].expect(9)
	if atomic.LoadUint32(ranks[1].flag(0, 0)) != 1 || atomic.LoadUint32(ranks[1].flag(2, 0)) != 0 {
		t.Error("who left is not marked")
	}
	if stalls := h.server.Waiting(now); len(stalls) != 0 {
		t.Errorf("nobody waits in a slot for one who left: %+v", stalls)
	}
}

// A use of a slot that all came to after an error went well; one that someone came to did not, nor did those of slots
// that are no more.
func TestSlotSaysNotWhyItLeft(t *testing.T) {
	for _, tt := range []struct {
		words [2]uint64 // of both ranks in the slot of x after the error
		want  string
	}{{[2]uint64{4, 4}, ""}, {[2]uint64{4, 2}, "disagree about y"}, {[2]uint64{4, 3}, "disagree about y"}, {[2]uint64{2, 2}, "disagree about y"}} {
		h, ranks := startSlots(t, 2)
		at := all(ranks, "x", 16, always)[0]
		all(ranks, "z", 16, always)
		came := func(words [2]uint64) {
			for i, w := range words {
				atomic.StoreUint64(ranks[i].word(at+uint64(64*i)), w)
			}
		}
		came([2]uint64{2, 2})
		for _, name := range []string{"y", "z"} { // z has a slot, which this takes away
			ranks[0].submit(name, 16, true)
			o := allreduce(99, ranks[1].region, 16, name)
			o.dtype = kernel.Int32
			ranks[1].send(o.encode())
			for _, c := range ranks {
				c.expect(68)
			}
		}
		came(tt.words)
		if got := whyLeft(t, h, ranks[0].client); !strings.HasSuffix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%v: %q, want %q", tt.words, got, tt.want)
		}
	}
}

func TestNoSlotAfterJoin(t *testing.T) {
	_, ranks := startSlots(t, 2)
	all(ranks, "x", 16, always)
	o := operation{handle: 77, kind: collective.Join, in: none, out: none, name: "join"}
	ranks[0].send(o.encode())
	must.Soon(t, "the flag of who joined", func() bool { return atomic.LoadUint32(ranks[1].flag(0, 0)) == 1 })
	if got := all(ranks, "y", 16, always); got[0] != 0 || got[1] != 0 {
		t.Errorf("slots after a join: %v", got)
	}
}

func TestSlotNonsense(t *testing.T) {
	for name, message := range map[string][]byte{
		"wake-up":   words(9, 0),
		"slots":     words(8, 0, 0),
		"wide":      func() []byte { b := allreduce(1, 1, 4, "b").encode(); b[11] |= 0x80; return b }(),
		"broadcast": func() []byte { b := allreduce(1, 1, 4, "b").encode(); b[8] = 0x80 | 3; return b }(),
	} {
		_, ranks := startSlots(t, 2)
		ranks[0].send(message)
		if b, _ := ranks[0].expect(70); le.Uint32(b[4:]) != uint32(collective.CodeInvalid) {
			t.Errorf("%s: %q", name, b)
		}
		ranks[0].ended()
	}
	// Where there are none, no one may ask for them.
	h := start(t, 1).beginHere()
	c := join(t, h.name, 0)
	c.send(words(8, 0))
	c.expect(70)
}

const inSlot = `
import sys, time
from gorun import numpy as hvd
hvd.init()
for _ in range(5): x = hvd.allreduce([1.0], name="x", op=hvd.Sum)
print("met", x, flush=True)
if hvd.rank() == 0:
    open(sys.argv[1], "w").close()
    time.sleep(1000)
try:
    hvd.allreduce([1.0], name="x", op=hvd.Sum)
except Exception as e:
    print(e)
`

// TestSlotKilled kills a rank with -9 while another waits for it in a slot: that one hears who it was.
func TestSlotKilled(t *testing.T) {
	if exec.Command(interpreter(), "-c", "import numpy").Run() != nil {
		t.Skip("python3 has no numpy")
	}
	h := startReal(t, 2).begin()
	path := filepath.Join(t.TempDir(), "met")
	other, out := h.python(t, 1, "-c", inSlot, path)
	victim, _ := h.python(t, 0, "-c", inSlot, path)
	must.Soon(t, "rank 0 is done", func() bool { _, err := os.Stat(path); return err == nil })
	must.Soon(t, "rank 1 waits", func() bool { return len(h.server.Waiting(time.Now())) == 1 })
	victim.Process.Kill()
	victim.Wait()
	if err := other.Wait(); err != nil || !strings.HasPrefix(out.String(), "met [2.]\nallreduce \"allreduce.x\": rank 0 on host1 left") {
		t.Errorf("%v: %q", err, out)
	}
}
