package resume

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/must"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSession(t *testing.T) (Session, net.Listener) {
	t.Helper()
	id := make([]byte, 8)
	rand.Read(id)
	s := Session{Cluster: "test", ID: fmt.Sprintf("%x", id), Slots: 3}
	f, err := s.Listen()
	must.Do(t, err)
	defer f.Close()
	l, err := net.FileListener(f)
	must.Do(t, err)
	return s, l
}

// serve is Serve in a process that ends with its stream.
func serve(t *testing.T, l net.Listener, s *ResumableStream, p Timeouts) {
	serveRelay(t, l, &Relay{stream: s, reading: s}, p)
}

func serveRelay(t *testing.T, l net.Listener, r *Relay, p Timeouts) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { Serve(ctx, l, r, p) })
	for s := r.current(); ; s = r.current() {
		s.mu.Lock()
		for s.err == nil && !s.peerClosed {
			s.changed.Wait()
		}
		s.mu.Unlock()
		if r.current() == s {
			break
		}
	}
	cancel()
	wg.Wait()
}

// line carries the near end over a connection that breaks after so many bytes in either direction.
func line(s Session, near *ResumableStream, token []byte, limit int64) error {
	conn, err := s.Dial()
	if err != nil {
		return err
	}
	conn.Write(token)
	return near.Carry(conn, io.LimitReader(conn, limit))
}

// again carries the near end over one connection after the other, until its end.
func again(s Session, near *ResumableStream) {
	for !near.Over() {
		line(s, near, make([]byte, TokenSize), 1<<30)
	}
}

// TestResumed: connections that break anywhere cost neither a byte nor their order, in either direction.
func TestResumed(t *testing.T) {
	t.Parallel()
	s, l := newSession(t)
	near, far := New(), New()
	var wg sync.WaitGroup
	wg.Go(func() { serve(t, l, far, Timeouts{First: time.Minute, Broken: time.Minute, Orphan: time.Minute}) })
	r := mrand.New(mrand.NewPCG(1, 2))
	breaks := 0
	token := make([]byte, TokenSize)
	wg.Go(func() {
		for !near.Over() {
			if line(s, near, token, 100+r.Int64N(200_000)) != nil {
				breaks++
			}
		}
	})
	const size = 8 << 20
	var passing sync.WaitGroup // in either direction
	for _, pair := range [][2]*ResumableStream{{near, far}, {far, near}} {
		sum := make([]byte, size)
		rand.Read(sum)
		passing.Go(func() {
			for rest := sum; len(rest) > 0; {
				n := min(len(rest), 1+len(rest)/7)
				if _, err := pair[0].Write(rest[:n]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
		})
		passing.Go(func() {
			got := make([]byte, size)
			if _, err := io.ReadFull(pair[1], got); err != nil || !bytes.Equal(got, sum) {
				t.Errorf("something else arrived: %v", err)
			}
		})
	}
	passing.Wait()
	near.Close(10 * time.Second)
	wg.Wait()
	if breaks < 20 {
		t.Errorf("only %d connections broke", breaks)
	}
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the goodbye: %v", err)
	}
}

// full is a listener of a process that has no descriptor left for so many connections.
type full struct {
	net.Listener
	refusals int
}

func (l *full) Accept() (net.Conn, error) {
	if l.refusals--; l.refusals >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// TestDescriptorsRunOut: a connection that cannot be accepted for now does not end the stream.
func TestDescriptorsRunOut(t *testing.T) {
	t.Parallel()
	s, l := newSession(t)
	near, far := New(), New()
	var wg sync.WaitGroup
	wg.Go(func() { serve(t, &full{l, 3}, far, ResidentTimeouts) })
	wg.Go(func() { line(s, near, make([]byte, TokenSize), 1<<30) })
	near.Write([]byte("words"))
	got := make([]byte, 5)
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "words" {
		t.Errorf("%q, %v", got, err)
	}
	far.Close(20 * time.Second)
	near.Close(20 * time.Second)
	wg.Wait()
}

// TestFlush waits for what the other side has, also if it has no connection yet, and no longer than it may.
func TestFlush(t *testing.T) {
	t.Parallel()
	s, l := newSession(t)
	near, far := New(), New()
	if !far.Flush(0) {
		t.Error("nothing was written, and that has not arrived")
	}
	far.Write([]byte("words"))
	if far.Flush(20 * time.Millisecond) {
		t.Error("words arrived without a connection")
	}
	var wg sync.WaitGroup
	wg.Go(func() { serve(t, l, far, ResidentTimeouts) })
	wg.Go(func() { again(s, near) })
	if !far.Flush(20 * time.Second) {
		t.Error("the words did not arrive")
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(near, got); err != nil || string(got) != "words" {
		t.Errorf("%q, %v", got, err)
	}
	far.Close(20 * time.Second)
	wg.Wait()
}

// TestGoodbyeComesLast: who closes after writing loses nothing, even if there is no connection then.
func TestGoodbyeComesLast(t *testing.T) {
	t.Parallel()
	s, l := newSession(t)
	near, far := New(), New()
	var wg sync.WaitGroup
	wg.Go(func() { serve(t, l, far, ResidentTimeouts) })
	wg.Go(func() {
		far.Write([]byte("last words"))
		far.Close(20 * time.Second)
	})
	wg.Go(func() { again(s, near) })
	if got, err := io.ReadAll(near); err != nil || string(got) != "last words" {
		t.Errorf("%q, %v", got, err)
	}
	wg.Wait()
}

// TestWhoWaits: a stream ends when no launcher resumes it, soon if the launcher hung up, and at once on order; and none
// but its launcher can resume it.
func TestWhoWaits(t *testing.T) {
	t.Parallel()
	long := Timeouts{First: time.Minute, Broken: time.Minute, Orphan: time.Minute}
	begin := func(p Timeouts) (Session, *ResumableStream, *ResumableStream, *Line, func()) {
		s, l := newSession(t)
		near, far := New(), New()
		var wg sync.WaitGroup
		wg.Go(func() { serve(t, l, far, p) })
		conn, err := s.Dial()
		must.Do(t, err)
		conn.Write(bytes.Repeat([]byte("k"), TokenSize))
		wg.Go(func() { near.Carry(conn, conn) })
		near.Write([]byte("x"))
		if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return s, near, far, conn, wg.Wait
	}
	told := func(p *Timeouts) chan bool { // whether there is a connection
		connected := make(chan bool, 10)
		p.Connected = func(here bool) { connected <- here }
		return connected
	}
	ends := func(far *ResumableStream, want error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		defer context.AfterFunc(ctx, func() { far.Fail(ctx.Err()) })()
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	for name, tc := range map[string]struct {
		orphan bool
		change func(*Timeouts)
	}{
		"broken": {false, func(p *Timeouts) { p.Broken = 50 * time.Millisecond }},
		"orphan": {true, func(p *Timeouts) { p.Orphan = 50 * time.Millisecond }},
		"a reason that lasts": {true, func(p *Timeouts) {
			p.Orphan, p.Extend = 20*time.Millisecond, func(waited time.Duration) bool { return waited < 100*time.Millisecond }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := long
			tc.change(&p)
			_, _, far, conn, wait := begin(p)
			if tc.orphan {
				conn.Orphan()
			}
			conn.Close()
			ends(far, ErrNotResumed)
			wait()
		})
	}
	t.Run("a reason to wait", func(t *testing.T) {
		p := long
		p.Orphan = 20 * time.Millisecond
		var asked atomic.Int64
		p.Extend = func(time.Duration) bool { return asked.Add(1) < 4 }
		connected := told(&p)
		_, _, far, conn, wait := begin(p)
		conn.Orphan()
		conn.Close()
		ends(far, ErrNotResumed)
		wait()
		if n := asked.Load(); n != 4 {
			t.Errorf("asked %d times", n)
		}
		if first, second := <-connected, <-connected; !first || second || len(connected) > 0 {
			t.Errorf("told of %v and %v, and %d more", first, second, len(connected))
		}
	})
	t.Run("silent", func(t *testing.T) {
		p := long
		p.Orphan = 20 * time.Millisecond // a connection that breaks would leave more time
		var patience atomic.Int64        // for ever
		p.Silent = func() time.Duration { return time.Duration(patience.Load()) }
		connected := told(&p)
		_, near, far, _, wait := begin(p)
		if !<-connected {
			t.Error("told at first that it is not there")
		}
		time.Sleep(3 * timing.LookInterval)
		if len(connected) > 0 || far.Over() {
			t.Fatal("it was to wait as long as the connection stands")
		}
		patience.Store(int64(time.Millisecond))
		ends(far, ErrSilent)
		if <-connected {
			t.Error("told that it is there again")
		}
		wait()
		near.Fail(net.ErrClosed)
	})
	t.Run("silent for a while", func(t *testing.T) {
		p := long
		var patience atomic.Int64
		patience.Store(int64(time.Millisecond))
		p.Silent = func() time.Duration { return time.Duration(patience.Load()) }
		connected := told(&p)
		s, near, far, _, wait := begin(p)
		for i, want := range []bool{true, false, true} {
			if here := <-connected; here != want {
				t.Fatalf("%d: told %v", i, here)
			}
			if !want {
				patience.Store(int64(time.Minute))
				near.Write([]byte("here"))
			}
		}
		if far.Over() {
			t.Error("it is over although something came")
		}
		s.End(1)
		wait()
	})
	t.Run("another launcher", func(t *testing.T) {
		p := long
		connected := told(&p)
		s, near, far, conn, wait := begin(p)
		conn.Close() // the former one is gone
		near.Fail(net.ErrClosed)
		if first, second := <-connected, <-connected; !first || second {
			t.Errorf("told of %v and %v", first, second)
		}
		next, err := s.Adopt(2)
		must.Do(t, err)
		next.Write(bytes.Repeat([]byte("o"), TokenSize))
		ends(far, ErrSuperseded)
		if !<-connected {
			t.Error("told that the other one is gone")
		}
		s.End(2)
		wait()
		next.Close()
	})
	t.Run("order", func(t *testing.T) {
		s, _, far, conn, wait := begin(long)
		w, err := s.Watch()
		must.Do(t, err)
		s.End(1)
		ends(far, ErrOrder)
		conn.Close()
		wait()
		if _, err := w.Read(make([]byte, 1)); err == nil { // the end, or a reset where not all was read
			t.Error("a watch does not end")
		}
		w.Close()
	})
	t.Run("stranger", func(t *testing.T) {
		s, near, far, conn, wait := begin(long)
		if err := line(s, New(), bytes.Repeat([]byte("o"), TokenSize), 1<<30); err == nil {
			t.Error("another token was taken")
		}
		near.Write([]byte("y"))
		if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		near.Close(time.Second)
		conn.Close()
		wait()
	})
	t.Run("late orphan", func(t *testing.T) { // of a connection that was replaced
		p := long
		p.Orphan = 0
		s, near, far, conn, wait := begin(p)
		next, err := s.Dial()
		must.Do(t, err)
		next.Write(bytes.Repeat([]byte("k"), TokenSize))
		conn.Close()
		var wg sync.WaitGroup
		wg.Go(func() { near.Carry(next, next) })
		near.Write([]byte("y"))
		if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		conn.Orphan()
		near.Write([]byte("z"))
		if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		near.Close(time.Second)
		wg.Wait()
		wait()
	})
}

// TestLateAcknowledgement: what the next launcher is sent stays as it is when the former one acknowledges more of it.
func TestLateAcknowledgement(t *testing.T) {
	s := New()
	s.Write([]byte("abcdef"))
	base, out := s.unacknowledged()
	must.Do(t, s.acknowledged(4, 6))
	if base != 0 || string(out) != "abcdef" {
		t.Errorf("from byte %d, the next launcher would be sent %q", base, out)
	}
}

// TestTakenOver: another launcher with a greater term goes on with what the former one has not acknowledged, write by
// write, while others write; the former one, and any without a greater term, can do nothing any more.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	s, l := newSession(t)
	r := NewRelay()
	var wg sync.WaitGroup
	wg.Go(func() { serveRelay(t, l, r, Timeouts{First: time.Minute, Broken: time.Minute, Orphan: time.Minute}) })
	const writes, size = 3000, 1000
	wg.Go(func() {
		for i := range writes + 10 { // more than a launcher that is killed takes along: the last one waits for the last of the others
			if _, err := r.Write(bytes.Repeat([]byte{byte(i), byte(i >> 8)}, size/2)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	got, last := map[int]bool{}, -1
	for term := uint64(1); ; term++ {
		near := New()
		var conn *Line
		var err error
		if term == 1 {
			conn, err = s.Dial()
		} else {
			conn, err = s.Adopt(term)
		}
		must.Do(t, err)
		conn.Write(bytes.Repeat([]byte{byte(term)}, TokenSize))
		var carrying sync.WaitGroup
		carrying.Go(func() { near.Carry(conn, conn) })
		if term > 1 {
			near.Write([]byte{byte(term)})
			one := make([]byte, 1)
			for {
				if _, err := r.Read(one); err == nil {
					break
				} else if !errors.Is(err, ErrSuperseded) || !r.Next() {
					t.Fatal(err)
				}
			}
			if one[0] != byte(term) {
				t.Errorf("the words of launcher %d were read in term %d", one[0], term)
			}
			s.End(term - 1) // it has nothing to send any more
			if err := line(s, New(), bytes.Repeat([]byte{byte(term - 1)}, TokenSize), 1<<30); err == nil {
				t.Error("the former token was taken")
			}
			if old, err := s.Adopt(term); err == nil {
				old.Write(make([]byte, TokenSize))
				if _, err := old.Read(make([]byte, 1)); err == nil {
					t.Error("another launcher of the same term was taken")
				}
				old.Close()
			}
		}
		first := -1
		buf := make([]byte, size)
		take := func() bool {
			if _, err := io.ReadFull(near, buf); err != nil {
				return false
			}
			n := int(buf[0]) | int(buf[1])<<8
			if !bytes.Equal(buf, bytes.Repeat(buf[:2], size/2)) {
				t.Errorf("write %d did not come as a whole", n)
			}
			if first < 0 {
				if first = n; n > last+2 {
					t.Errorf("launcher %d begins with write %d, the former had up to %d", term, n, last)
				}
			} else if n != last+1 {
				t.Errorf("write %d after %d", n, last)
			}
			last, got[n] = n, true
			return true
		}
		for last < min(int(term)*700, writes-1) && take() {
		}
		if last >= writes-1 {
			near.Close(10 * time.Second)
			carrying.Wait()
			break
		}
		near.Fail(errors.New("killed"))
		conn.Close()
		carrying.Wait()
		for take() { // what it had already
		}
	}
	wg.Wait()
	if len(got) < writes-5 {
		t.Errorf("%d of %d writes arrived", len(got), writes)
	}
}

// TestBounded: a writer without a reader waits when a window is full.
func TestBounded(t *testing.T) {
	t.Parallel()
	s := New()
	n := make(chan int)
	go func() {
		k, _ := s.Write(make([]byte, 3*window))
		n <- k
	}()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		full := len(s.out) == window
		s.mu.Unlock()
		if full || time.Now().After(deadline) {
			break
		}
	}
	s.Fail(ErrNotResumed)
	if k := <-n; k != window {
		t.Errorf("it took %d bytes", k)
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	s, l := newSession(t)
	defer l.Close()
	found := false
	for _, x := range Sessions("test") {
		found = found || x == s
	}
	if !found {
		t.Errorf("%v is not among %v", s, Sessions("test"))
	}
	text := "Num       RefCount Protocol Flags    Type St Inode Path\n0000: 2 0 10000 0001 01 1 @gorun-job.c.2.0123456789abcdef\n" +
		"0000: 2 0 10000 0001 01 1 @gorun-job.c.2.0123456789abcdef\n0000: 2 0 10000 0001 01 1 @gorun-job.d.2.0123456789abcdef\n0000: 2 0 10000 0001 01 1 @gorun-job.c.x.0123456789abcdef\n@gorun-job.c.2"
	if got := parse(text, "c"); len(got) != 1 || got[0] != (Session{"c", "0123456789abcdef", 2}) {
		t.Errorf("found %v", got)
	}
}

// FuzzCarry: whatever comes over a connection, the stream does not panic and keeps no more than a window.
func FuzzCarry(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, data, 1, 0, 0, 0, 'x', ack, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, closing, 0, 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, c := net.Pipe()
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(io.Discard, a) })
		s := New()
		s.Carry(c, bytes.NewReader(b))
		a.Close()
		wg.Wait()
		if len(s.in) > window+largest || len(s.in) > len(b) {
			t.Errorf("%d bytes of %d", len(s.in), len(b))
		}
		if s.Connected() {
			t.Error("it is still connected")
		}
	})
}

// FuzzSessions: the kernel's list holds names that any user of this host may have chosen.
func FuzzSessions(f *testing.F) {
	id := strings.Repeat("ab", 16)
	f.Add("0000: 00000002 00000000 00010000 0001 01 1 @"+prefix+"c.2."+id+"\n", "c")
	f.Add("@"+prefix+"c.-1.x\n@"+prefix+"c.9999999999999999999.x\n"+prefix+"c.", "c")
	f.Fuzz(func(t *testing.T, text, cluster string) {
		seen := map[Session]bool{}
		for _, s := range parse(text, cluster) {
			if s.Cluster != cluster || s.Slots < 1 || !ValidID(s.ID) || seen[s] {
				t.Fatalf("%+v", s)
			}
			seen[s] = true
		}
	})
}

// TestPatienceAfterStandstill: a host that was stopped while it waited for a connection gives hosts that look for it a
// moment.
func TestPatienceAfterStandstill(t *testing.T) {
	v := &server{relay: NewRelay(), waits: true, due: time.Now().Add(-20 * time.Second)}
	v.timer = time.AfterFunc(time.Hour, v.expire)
	defer v.timer.Stop()
	if v.expire(); v.relay.current().Over() {
		t.Fatal("it gives up at once")
	}
	if left := time.Until(v.due); left < timing.ReunionGrace/2 || left > timing.ReunionGrace {
		t.Errorf("it waits for %v", left)
	}
	v.due = time.Now()
	if v.expire(); !v.relay.current().Over() {
		t.Error("it does not give up")
	}
}

// TestStaleConnections: a process is paused while its launcher connects again and again, and gives up all connections
// but the last. That one carries the stream when the process goes on, whichever of them it comes to first.
func TestStaleConnections(t *testing.T) {
	for range 20 {
		s, l := newSession(t)
		token := make([]byte, TokenSize)
		dial := func() *Line {
			line, err := s.Dial()
			must.Do(t, err)
			line.Write(token)
			return line
		}
		for range 8 {
			stale := dial()
			stale.Write(make([]byte, 8)) // it has received nothing
			stale.Close()
		}
		near, far := New(), NewRelay()
		last := dial()
		ended := make(chan error, 1)
		go func() { ended <- near.Carry(last, last) }()
		ctx, cancel := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() { Serve(ctx, l, far, Timeouts{First: time.Minute, Broken: time.Minute, Orphan: time.Minute}) })
		for range 3 {
			go far.Write([]byte("hello"))
			timeout := time.AfterFunc(10*time.Second, func() { near.Fail(ErrNotResumed) })
			if _, err := io.ReadFull(near, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			timeout.Stop()
			time.Sleep(time.Millisecond)
		}
		select {
		case err := <-ended:
			t.Errorf("the last connection has ended: %v", err)
		default:
		}
		near.Fail(io.EOF)
		far.Fail(io.EOF)
		cancel()
		serving.Wait()
	}
}
