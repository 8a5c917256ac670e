package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/contrib/must"
	"gorun/worker/session"
	"gorun/worker/shm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rejoined is a process that waits for the world after an epoch.
type rejoined struct {
	process int
	epoch   uint32
	why     string
}

// host is a running server with an engine for size ranks, all on this host.
type host struct {
	server *session.Server
	engine *engine
	real   *collective.Engine // behind the server, if it is there
	pool   *shm.Pool
	name   string
	stop   func()

	rejoined chan rejoined
	new      chan int  // processes that wait for their first world
	wanted   chan bool // a value for each rank that waits for the first world
	kept     chan uint32
}

func start(t testing.TB, size int) *host { return startBounded(t, size, 0) }

// startBounded starts a server that allows a rank so many operations.
func startBounded(t testing.TB, size, operations int) *host {
	t.Helper()
	h := &host{pool: shm.NewPool(1 << 30), rejoined: make(chan rejoined, 16), new: make(chan int, 256), wanted: make(chan bool, 16), kept: make(chan uint32, 16)}
	h.engine = newEngine(size, h.pool)
	h.serve(t, session.Config{Engine: h.engine, Operations: operations,
		Rejoin: func(process int, epoch uint32, why string) {
			if epoch > 0 {
				h.rejoined <- rejoined{process, epoch, why}
			} else {
				h.new <- process
			}
		}, Wanted: func() { h.wanted <- true },
		Kept: func(epoch uint32) { h.kept <- epoch }}, below(size))
	return h
}

// below returns the ranks of a world of that size.
func below(size int) (ranks []int) {
	for rank := range size {
		ranks = append(ranks, rank)
	}
	return ranks
}

// serve starts the server for ranks of this host, and the engine behind it if that is real.
func (h *host) serve(t testing.TB, cfg session.Config, ranks []int) {
	t.Helper()
	cfg.Job, cfg.ArenaLimit = "test", 1<<30
	h.server = session.New(cfg)
	var err error
	h.name, err = h.server.Listen()
	must.Do(t, err)
	for _, rank := range ranks {
		h.server.Expect(rank, token(rank))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, stopped := make(chan error, 1), make(chan error, 1)
	go func() { ended <- h.server.Run(ctx) }()
	if h.real != nil {
		go func() { stopped <- h.real.Run(ctx) }()
	}
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if h.real != nil {
			h.real.Close()
			<-stopped
		}
		h.pool.Close()
	})
	t.Cleanup(h.stop)
}

// begin commits a world of all ranks.
func (h *host) begin() *host {
	w := session.LocalWorld{Epoch: 5, Size: h.engine.size, Hosts: 1}
	for rank := range h.engine.size {
		w.Places = append(w.Places, session.RankPlace{Process: rank, Rank: rank, LocalRank: rank, CrossSize: 1})
	}
	h.server.SetWorld(w)
	return h
}

func TestWelcomeWaitsForWorld(t *testing.T) {
	h := start(t, 2)
	c := greet(t, h.name, 1)
	must.Soon(t, "connected", func() bool { return h.server.PID(1) != 0 })
	if h.server.PID(0) != 0 {
		t.Error("rank 0 is said to be connected")
	}
	must.Soon(t, "rank 1 waits for a world", func() bool { return len(h.wanted) == 1 })
	h.begin()
	b, _ := c.expect(65)
	got := make([]uint32, 0, 10)
	for i := 4; i < 44; i += 4 {
		got = append(got, le.Uint32(b[i:]))
	}
	if want := []uint32{1, 5, 1, 2, 1, 2, 0, 1, 30, 1}; fmt.Sprint(got) != fmt.Sprint(want) || string(b[44:48]) != "test" {
		t.Errorf("welcome %v %q, want %v and the job", got, b[44:], want)
	}
	join(t, h.name, 0) // one that comes later is answered at once
	if len(h.wanted) > 1 {
		t.Error("rank 0 is said to wait for a world")
	}
}

func TestHandshakeRefuses(t *testing.T) {
	good := helloOf(0, token(0))
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for name, b := range map[string][]byte{
		"wrong token":     change(55, 0),
		"unexpected rank": change(12, 7),
		"negative rank":   change(15, 0xFF),
		"bad magic":       change(7, '2'),
		"unknown flags":   change(20, 2),
		"padding":         change(63, 1),
		"short":           good[:63],
		"long":            append(bytes.Clone(good), 0),
		"something else":  words(6, 0),
	} {
		h := start(t, 1).begin()
		c := dial(t, h.name)
		c.send(b)
		if got, _ := c.receive(); got != nil {
			t.Errorf("%s: answered with %q", name, got)
		}
		if len(h.engine.gone()) > 0 || h.server.PID(0) != 0 {
			t.Errorf("%s: counts as a rank", name)
		}
		join(t, h.name, 0) // the server goes on
		h.stop()
	}
}

func TestHandshakeDeadline(t *testing.T) {
	server := session.New(session.Config{Engine: newEngine(1, nil), Handshake: 20 * time.Millisecond})
	name, err := server.Listen()
	must.Do(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- server.Run(ctx) }()
	if b, _ := dial(t, name).receive(); b != nil {
		t.Errorf("silence was answered with %q", b)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestOtherVersionIsToldSo(t *testing.T) {
	h := start(t, 1)
	c := dial(t, h.name)
	b := helloOf(0, token(0))
	b[8] = 2
	c.send(b)
	got, _ := c.expect(67)
	if !strings.Contains(string(got[20:]), "version 1") {
		t.Errorf("refusal %q", got[20:])
	}
	c.ended()
}

// TestReportsWhyItLeft: the launcher hears what went wrong first, of what went wrong last, for a process that waits for
// another world, as long as nothing went well that it has begun later.
func TestReportsWhyItLeft(t *testing.T) {
	for _, tt := range []struct {
		operations string // in capitals if they fail; with "(" first, it is begun before, and ends after what follows up to ")"
		want       string
	}{
		{"X Y", "disagree about X"},
		{"a X b", ""},
		{"X b Y Z", "disagree about Y"},
		{"(a X )", "disagree about X"},
		{"X (a Y )", "disagree about X"},
		{"! X", "is not UTF-8"},
		{"X ! a", ""},
	} {
		h := start(t, 2).begin()
		ranks := []*client{join(t, h.name, 0), join(t, h.name, 1)}
		var regions [2]uint32
		for i, c := range ranks {
			regions[i], _ = c.alloc(64)
		}
		submit := func(rank, handle int, name string) {
			o := allreduce(uint32(handle), regions[rank], 8, name)
			if name == strings.ToUpper(name) && rank == 1 {
				o.dtype = kernel.Int32
			}
			ranks[rank].send(o.encode())
		}
		for i, word := range strings.Fields(tt.operations) {
			switch name := strings.TrimPrefix(word, "("); {
			case word == "!": // refused
				o := allreduce(uint32(i+10), regions[0], 8, "no\xff")
				ranks[0].send(o.encode())
				ranks[0].expect(67)
			case word == ")":
				submit(1, 5, "a")
				ranks[0].expect(68)
				ranks[1].expect(68)
			case name != word:
				submit(0, 5, name)
			default:
				submit(0, i+10, name)
				submit(1, i+10, name)
				ranks[0].expect(68)
				ranks[1].expect(68)
			}
		}
		if got := whyLeft(t, h, ranks[0]); !strings.HasSuffix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q, want %q", tt.operations, got, tt.want)
		}
		h.stop()
	}
}

// whyLeft has process 0 wait for another world, and returns why, as the server reports it.
func whyLeft(t *testing.T, h *host, c *client) string {
	t.Helper()
	c.goodbye()
	greet(t, h.name, 0)
	select {
	case got := <-h.rejoined:
		if got.process != 0 {
			t.Errorf("%+v", got)
		}
		return got.why
	case <-time.After(20 * time.Second):
		t.Fatal("nobody hears that the process waits")
	}
	panic("unreachable")
}

// TestKept: a rank reports that it has committed its state, and the server knows in which world.
func TestKept(t *testing.T) {
	h := start(t, 1).begin()
	c := join(t, h.name, 0)
	c.send(words(13, 0))
	select {
	case epoch := <-h.kept:
		if epoch != 5 {
			t.Errorf("epoch %d", epoch)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the server hears nothing of the commit")
	}
}

func TestOneSessionPerRank(t *testing.T) {
	h := start(t, 1).begin()
	first := join(t, h.name, 0)
	second := greet(t, h.name, 0)
	b, _ := second.expect(67)
	if !strings.Contains(string(b[20:]), "connected already") {
		t.Errorf("refusal %q", b[20:])
	}
	second.ended()
	if len(h.engine.gone()) != 0 {
		t.Error("the refused session counts as leaving")
	}
	first.goodbye()

	// The same process may come back as soon as it has sent goodbye, and then waits for another world.
	back := greet(t, h.name, 0)
	select {
	case left := <-h.rejoined:
		if left != (rejoined{process: 0, epoch: 5}) {
			t.Errorf("process and epoch %+v wait", left)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nobody hears that the process waits")
	}
	h.server.SetWorld(session.LocalWorld{Epoch: 6, Size: 1, Hosts: 1, Places: []session.RankPlace{{CrossSize: 1}}})
	if b, _ := back.expect(65); le.Uint32(b[8:]) != 6 {
		t.Errorf("welcome %x", b)
	}
}

func TestRefusedOperations(t *testing.T) {
	h := start(t, 2).begin()
	c := join(t, h.name, 0)
	region, _ := c.alloc(2 << 20) // exactly one granule
	base := allreduce(1, region, 8, "x")
	with := func(change func(o *operation)) operation {
		o := base
		o.dims = append([]int64(nil), base.dims...)
		change(&o)
		return o
	}
	for name, o := range map[string]operation{
		"no name":                    with(func(o *operation) { o.name = "" }),
		"name too long":              with(func(o *operation) { o.name = strings.Repeat("x", 4097) }),
		"name is not UTF-8":          with(func(o *operation) { o.name = "\xff" }),
		"unknown kind":               with(func(o *operation) { o.kind = 0 }),
		"unknown kind 7":             with(func(o *operation) { o.kind = 7 }),
		"unknown type":               with(func(o *operation) { o.dtype = 16 }),
		"splits of an allreduce":     with(func(o *operation) { o.splits = []int32{1} }),
		"foreign region":             with(func(o *operation) { o.in = region + 1 }),
		"foreign target":             with(func(o *operation) { o.out = region + 1 }),
		"no source":                  with(func(o *operation) { o.in = none }),
		"no target":                  with(func(o *operation) { o.out = none }),
		"offset outside":             with(func(o *operation) { o.inOffset = 2<<20 - 28; o.outOffset = o.inOffset }),
		"offset overflows":           with(func(o *operation) { o.inOffset = math.MaxUint64 - 3; o.outOffset = o.inOffset }),
		"offset plus bytes overflow": with(func(o *operation) { o.inOffset = math.MaxUint64 - 31; o.outOffset = o.inOffset }),
		"unaligned":                  with(func(o *operation) { o.inOffset = 2; o.outOffset = 2 }),
		"too few bytes":              with(func(o *operation) { o.inBytes = 28 }),
		"too many bytes":             with(func(o *operation) { o.outBytes = 36 }),
		"negative dimension":         with(func(o *operation) { o.dims[0] = -8 }),
		"shape overflows":            with(func(o *operation) { o.dims = []int64{1 << 62, 8} }),
		"shape wraps to size":        with(func(o *operation) { o.dims = []int64{1 << 32, 1 << 32, 8} }),
		"root without source":        with(func(o *operation) { o.kind = collective.Broadcast; o.in = none; o.inBytes = 0 }),
		"allgather with target":      with(func(o *operation) { o.kind = collective.Allgather }),
		"barrier with a tensor":      with(func(o *operation) { o.kind = collective.Barrier }),
	} {
		c.send(o.encode())
		b, _ := c.expect(67)
		if le.Uint32(b[4:]) != 1 || le.Uint32(b[8:]) != 3 || le.Uint32(b[12:]) != uint32(collective.CodeInvalid) {
			t.Errorf("%s: refusal %x", name, b)
		}
	}
	if h.engine.pending() != 0 {
		t.Error("a refused operation reached the engine")
	}

	h.engine.mu.Lock()
	h.engine.refuse = &collective.Error{Code: collective.CodeMismatch, Text: "no"}
	h.engine.mu.Unlock()
	c.send(base.encode())
	if b, _ := c.expect(67); le.Uint32(b[12:]) != uint32(collective.CodeMismatch) || string(b[20:]) != "no" {
		t.Errorf("the engine's refusal: %x", b)
	}
	h.engine.mu.Lock()
	h.engine.refuse = nil
	h.engine.mu.Unlock()

	// After all of this the session still works, up to the last byte of the region.
	last := with(func(o *operation) { o.inOffset = 2<<20 - 32; o.outOffset = o.inOffset })
	c.send(last.encode())
	must.Soon(t, "submitted", func() bool { return h.engine.pending() == 1 })
}

func TestMalformedEndsSession(t *testing.T) {
	long := allreduce(1, 1, 1, "x").encode()
	for name, messages := range map[string][][]byte{
		"short":           {{1, 0}},
		"unknown type":    {words(77, 0)},
		"daemon's type":   {words(65, 0)},
		"second hello":    {helloOf(0, token(0))},
		"alloc length":    {words(2, 0, 0)},
		"release length":  {words(4, 0, 0)},
		"submit header":   {long[:83]},
		"submit tail":     {long[:len(long)-1]},
		"submit surplus":  {append(bytes.Clone(long), 0)},
		"33 dimensions":   {operation{kind: 1, dtype: 11, dims: make([]int64, 33), name: "x"}.encode()},
		"ndim lies":       {operation{kind: 1, dtype: 11, dims: make([]int64, 1), ndim: 9, name: "x"}.encode()},
		"too long":        {make([]byte, 64<<10+1)},
		"free of nothing": {words(5, 1)},
		"handle in use":   {operation{kind: 4, in: none, out: none, name: "a"}.encode(), operation{kind: 4, in: none, out: none, name: "b"}.encode()},
		"after goodbye":   {words(6, 0), words(6, 0)},
	} {
		h := start(t, 2).begin()
		c := join(t, h.name, 0)
		for _, m := range messages {
			c.send(m)
		}
		c.ended()
		must.Soon(t, name+": rank 0 left", func() bool { return fmt.Sprint(h.engine.gone()) == "[0]" })
		if h.server.PID(0) != 0 {
			t.Errorf("%s: still connected", name)
		}
		h.stop()
	}
}

func TestNothingBeforeWorld(t *testing.T) {
	h := start(t, 1)
	c := greet(t, h.name, 0)
	c.send(le.AppendUint64(words(2, 1), 1))
	b, _ := c.expect(70)
	if !strings.Contains(string(b[16:]), "before the world") {
		t.Errorf("gone %q", b[16:])
	}
	c.ended()
}

func TestArenaLimit(t *testing.T) {
	h := start(t, 1).begin()
	c := join(t, h.name, 0)
	for _, n := range []uint64{1<<30 + 1, math.MaxUint64, 1 << 63} {
		c.send(le.AppendUint64(words(2, 5), n))
		if b, _ := c.expect(67); le.Uint32(b[4:]) != 5 || le.Uint32(b[8:]) != 2 {
			t.Errorf("alloc of %d: refusal %x", n, b)
		}
	}
	region, _ := c.alloc(1 << 30)
	c.send(le.AppendUint64(words(2, 6), 1))
	c.expect(67)
	c.send(words(5, region))
	c.alloc(1 << 20) // there is room again
	for i := 1; i < 256; i++ {
		c.alloc(1)
	}
	c.send(le.AppendUint64(words(2, 7), 1))
	if b, _ := c.expect(67); !strings.Contains(string(b[20:]), "256 regions") {
		t.Errorf("region 257: %q", b[20:])
	}
}

func TestOperationsAreBounded(t *testing.T) {
	const limit = 300
	h := startBounded(t, 2, limit).begin()
	h.engine.holdBack()
	c := join(t, h.name, 0)
	for i := range uint32(limit + 1) {
		c.send(operation{handle: i, kind: collective.Barrier, in: none, out: none, name: "b"}.encode())
	}
	b, _ := c.expect(67)
	if le.Uint32(b[4:]) != limit {
		t.Errorf("refused handle %d, want %d", le.Uint32(b[4:]), limit)
	}
}

// TestRankThatDoesNotRead lets answers pile up: Complete does not block, everything arrives in order once the rank
// reads, and a rank that goes on without reading is cut off.
func TestRankThatDoesNotRead(t *testing.T) {
	const n = 2000 // more than the socket holds
	h := startBounded(t, 1, n).begin()
	c := join(t, h.name, 0)
	for i := range uint32(n) {
		c.send(operation{handle: i, kind: collective.Barrier, in: none, out: none, name: "b"}.encode())
	}
	for i := range uint32(n) {
		if b, _ := c.expect(68); le.Uint32(b[4:]) != i {
			t.Fatalf("completion of %d, want %d", le.Uint32(b[4:]), i)
		}
	}
	for i := range uint32(100000) {
		if err := unix.Send(c.fd, le.AppendUint64(words(2, i), math.MaxUint64), unix.MSG_NOSIGNAL); err != nil {
			must.Soon(t, "left", func() bool { return len(h.engine.gone()) == 1 })
			return
		}
	}
	t.Error("100000 refusals that nobody read did not end the session")
}

// TestMemoryOutlivesRank frees a region and ends the rank while the engine works on it.
func TestMemoryOutlivesRank(t *testing.T) {
	before := arenas(t)
	for _, death := range []string{"free", "goodbye", "close"} {
		h := start(t, 1).begin()
		h.engine.holdBack()
		c := join(t, h.name, 0)
		region, m := c.alloc(1 << 20)
		c.send(allreduce(1, region, 100, "x").encode())
		must.Soon(t, "submitted", func() bool { return h.engine.pending() == 1 })
		switch death {
		case "free":
			c.send(words(5, region))
			c.alloc(1) // answered after the free
		case "goodbye":
			c.goodbye()
			c.close()
		default:
			c.close()
		}
		if death != "free" {
			must.Soon(t, "rank 0 left", func() bool { return fmt.Sprint(h.engine.gone()) == "[0]" })
		}
		h.engine.release() // writes to the memory
		if m[0] != 1 {
			t.Errorf("%s: the engine wrote somewhere else", death)
		}
		h.stop()
	}
	// What is left are the mappings of the test's own clients.
	must.Soon(t, "unmapped", func() bool { return arenas(t) == before+4 })
}

// arenas counts the mappings of rank memory in this process.
func arenas(t testing.TB) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	must.Do(t, err)
	return strings.Count(string(maps), "/memfd:gorun-arena ")
}

func TestGone(t *testing.T) {
	h := start(t, 3)
	early := greet(t, h.name, 0)
	must.Soon(t, "connected", func() bool { return h.server.PID(0) != 0 })
	h.server.GiveUp(fmt.Errorf("end job: %w", &collective.Error{Code: collective.CodeShutdown, Text: "rank 7 failed"}), nil)
	for _, c := range []*client{early, dial(t, h.name)} {
		if c != early {
			c.send(helloOf(1, token(1)))
		}
		b, _ := c.expect(70)
		if le.Uint32(b[4:]) != uint32(collective.CodeShutdown) || string(b[16:]) != "rank 7 failed" {
			t.Errorf("gone %x", b)
		}
		c.goodbye()
	}
	h.server.GiveUp(errors.New("host2 died"), nil)
	c := greet(t, h.name, 2)
	if b, _ := c.expect(70); le.Uint32(b[4:]) != uint32(collective.CodeAborted) || string(b[16:]) != "host2 died" {
		t.Errorf("gone %x", b)
	}
}

// TestChanged: the ranks of a world hear that it could be another one, also those that connect afterwards; those of
// another world do not.
func TestChanged(t *testing.T) {
	h := start(t, 2)
	h.server.Changed(5, true, false, 6) // another host was in the world first
	h.begin()
	changed := func(c *client, flags uint32, stamp uint64) {
		t.Helper()
		if b, _ := c.expect(71); le.Uint32(b[4:]) != flags || le.Uint64(b[8:]) != stamp {
			t.Errorf("changed %x, want flags %d stamp %d", b, flags, stamp)
		}
	}
	first := join(t, h.name, 0)
	changed(first, 2, 6)
	h.server.Changed(5, false, true, 8)
	changed(first, 3, 8)
	second := join(t, h.name, 1)
	changed(second, 3, 8)
	h.server.Changed(6, true, false, 9) // of the next world
	second.goodbye()
}

func TestStopEndsSessions(t *testing.T) {
	h := start(t, 2).begin()
	c := join(t, h.name, 0)
	dial(t, h.name) // has sent nothing
	h.stop()
	c.ended()
	if got := fmt.Sprint(h.engine.gone()); got != "[0]" {
		t.Errorf("left: %s", got)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	must.Do(t, err)
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + h.name}); err != unix.ECONNREFUSED {
		t.Errorf("connect after the end: %v", err)
	}
}

// TestUpDown starts and stops servers while ranks connect, submit and vanish; goleak counts what is left.
func TestUpDown(t *testing.T) {
	for range 100 {
		h := start(t, 2)
		var wg sync.WaitGroup
		for rank := range 2 {
			c := dial(t, h.name)
			wg.Go(func() {
				hello := helloOf(rank, token(rank))
				barrier := operation{kind: collective.Barrier, in: none, out: none, name: "b"}.encode()
				for _, b := range [][]byte{hello, le.AppendUint64(words(2, 1), 1), barrier} {
					unix.Send(c.fd, b, unix.MSG_NOSIGNAL) // fails once the server has stopped
				}
			})
		}
		h.begin()
		h.stop()
		wg.Wait()
		if n := h.engine.pending(); n > 1 {
			t.Fatalf("%d operations are pending", n)
		}
	}
}

// TestNoGarbage counts allocations of the whole process: client, server and engine.
func TestNoGarbage(t *testing.T) {
	h := start(t, 1).begin()
	c := join(t, h.name, 0)
	region, _ := c.alloc(1 << 20)
	round := rounds(c, region)
	round()
	if n := testing.AllocsPerRun(200, round); n > 0 {
		t.Errorf("%v allocations per operation", n)
	}
}

// rounds returns a function that does one 4-byte allreduce and makes no garbage itself.
func rounds(c *client, region uint32) func() {
	message, buf := allreduce(1, region, 1, "x").encode(), make([]byte, 256)
	return func() {
		must.Do(c.t, unix.Send(c.fd, message, 0))
		n, err := unix.Read(c.fd, buf)
		for err == unix.EINTR {
			n, err = unix.Read(c.fd, buf)
		}
		if err != nil || n != 56 {
			c.t.Fatalf("read %d bytes: %v", n, err)
		}
	}
}
