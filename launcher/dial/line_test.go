package dial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/contrib/must"
	"gorun/launcher/failure"
	"gorun/launcher/ssh"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/resume"
)

func TestMain(m *testing.M) {
	serveAsHost() // does not return if a step has started this program
	goleak.VerifyTestMain(m)
}

// distant stands for a daemon with a socket, and for the ssh by which one comes to it.
type distant struct {
	stream  *resume.Relay
	session resume.Session
	over    context.CancelFunc
	wg      sync.WaitGroup
	logins  atomic.Int64
	refuse  atomic.Bool
	refused atomic.Int64 // logins
	hangsUp atomic.Bool

	mu   sync.Mutex
	last *fakeLogin
}

type fakeLogin struct {
	conn   net.Conn
	ended  chan struct{}
	once   sync.Once
	code   int
	lost   bool
	silent atomic.Bool
}

func newDistant(t *testing.T) *distant {
	t.Helper()
	id, _, err := newSession()
	must.Do(t, err)
	d := &distant{stream: resume.NewRelay(), session: resume.Session{Cluster: "test", ID: id, Slots: 1}}
	f, err := d.session.Listen()
	must.Do(t, err)
	l, err := net.FileListener(f)
	f.Close()
	must.Do(t, err)
	ctx, over := context.WithCancel(context.Background())
	d.over = over
	d.wg.Go(func() {
		resume.Serve(ctx, l, d.stream, resume.Timeouts{First: 20 * time.Second, Broken: 20 * time.Second, Orphan: 20 * time.Second})
	})
	t.Cleanup(func() {
		d.stream.Fail(io.EOF)
		over()
		d.wg.Wait()
	})
	return d
}

// TestHangUp: the daemon hears it when the launcher hangs up on it, and does not wait for another connection.
func TestHangUp(t *testing.T) {
	d := newDistant(t)
	ctx, hangUp := context.WithCancel(t.Context())
	late := func(context.Context) (*login, error) {
		d, err := d.login(t.Context())
		hangUp()
		return d, err
	}
	if _, err := openLine(ctx, nil, liveness.Default(), late, late); !errors.Is(err, context.Canceled) {
		t.Errorf("a login that nobody wants any more ends with %v", err)
	}
	ctx, hangUp = context.WithCancel(t.Context())
	l, err := openLine(ctx, bytes.Repeat([]byte("k"), resume.TokenSize), liveness.Default(), d.login, d.login)
	must.Do(t, err)
	ends := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, d.stream)
		ends <- err
	}()
	if _, err := l.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	hangUp()
	time.Sleep(20 * time.Millisecond) // for a reader that takes that for the end of the connection
	must.Report(t, l.Close())
	select {
	case err := <-ends:
		if err != nil {
			t.Errorf("the daemon did not hear it: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the daemon waits for another connection")
	}
}

// login comes to the daemon's socket; the last login is the one that breaks.
func (d *distant) login(ctx context.Context) (*login, error) {
	if d.refuse.Load() {
		d.refused.Add(1)
		return nil, errors.New("nobody answers")
	}
	conn, err := d.session.Dial()
	if err != nil {
		return nil, err
	}
	d.logins.Add(1)
	f := &fakeLogin{conn: conn, ended: make(chan struct{})}
	d.mu.Lock()
	d.last = f
	d.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { f.end(0, true) })
	return &login{In: f, Out: f, Close: func() error { stop(); f.end(0, true); return nil },
		Status: func() (int, error) {
			<-f.ended
			if f.lost {
				return -1, errors.New("connection lost")
			}
			return f.code, nil
		},
		HungUp: d.hangsUp.Load,
		Stderr: func() string { return fmt.Sprintf("exit %d", f.code) }}, nil
}

func (d *distant) present() *fakeLogin {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// end ends the connection, with the exit status of its program unless that is lost with it.
func (f *fakeLogin) end(code int, lost bool) {
	f.once.Do(func() {
		f.code, f.lost = code, lost
		close(f.ended)
		f.conn.Close()
	})
}

func (f *fakeLogin) Read(b []byte) (int, error) {
	n, err := f.conn.Read(b)
	if f.silent.Load() && err == nil {
		<-f.ended // what came is lost on the way
		return 0, io.EOF
	}
	return n, err
}

func (f *fakeLogin) Write(b []byte) (int, error) { return f.conn.Write(b) }

func (f *fakeLogin) Close() error { return f.conn.Close() }

func (d *distant) open(t *testing.T) *line { return d.openBy(t, d.login) }

func (d *distant) openBy(t *testing.T, again func(context.Context) (*login, error)) *line {
	t.Helper()
	_, token, err := newSession()
	must.Do(t, err)
	first, err := d.login(t.Context())
	must.Do(t, err)
	l := newLine(token, first, liveness.Default(), again)
	t.Cleanup(func() { l.Close() })
	return l
}

// says has the daemon write a line, and the launcher read it.
func (d *distant) says(t *testing.T, l *line, text string) {
	t.Helper()
	go d.stream.Write([]byte(text))
	got := make([]byte, len(text))
	if _, err := io.ReadFull(l, got); err != nil || string(got) != text {
		t.Fatalf("got %q and error %v, want %q", got, err, text)
	}
}

// TestLineCarriesOn: connections break, again and again, and every line arrives once and in order.
func TestLineCarriesOn(t *testing.T) {
	d := newDistant(t)
	l := d.open(t)
	for i := range 20 {
		d.says(t, l, fmt.Sprintf("line %d\n", i))
		d.present().end(0, true)
	}
	d.says(t, l, "last\n")
	if n := d.logins.Load(); n < 10 {
		t.Errorf("%d logins for 20 connections that broke", n)
	}
}

// TestLineEndsWithDaemon: the exit status of the daemon ends the line at once, and no one looks for it again.
func TestLineEndsWithDaemon(t *testing.T) {
	d := newDistant(t)
	l := d.open(t)
	d.says(t, l, "hello")
	d.present().end(3, false)
	if _, err := l.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("reading from a daemon that has ended: %v", err)
	}
	if text, err := l.Wait(); text != "exit 3" || err != nil {
		t.Errorf("its last words are %q, error %v", text, err)
	}
	if n := d.logins.Load(); n != 1 {
		t.Errorf("%d logins", n)
	}
}

// TestLineIsNotTheDaemon: a program that leads to the daemon and ends as ssh does whose connection broke is no end of
// the daemon; any other status is.
func TestLineIsNotTheDaemon(t *testing.T) {
	d := newDistant(t)
	l := d.open(t)
	d.says(t, l, "hello")
	d.present().end(0, true)
	d.says(t, l, "by another login")
	d.present().end(failure.ExitTransport, false)
	d.says(t, l, "and by yet another")
	d.present().end(0, false)
	if _, err := l.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("reading from a daemon that has ended: %v", err)
	}
}

// TestLineLogsInSlowly: where only a finished login shows that a host answers, it has the time of its last one to do so.
func TestLineLogsInSlowly(t *testing.T) {
	const slow = 50 * time.Millisecond
	for _, blind := range []bool{true, false} {
		d := newDistant(t)
		l, err := openLine(t.Context(), bytes.Repeat([]byte("k"), resume.TokenSize), liveness.Default(), func(ctx context.Context) (*login, error) {
			time.Sleep(slow)
			l, err := d.login(ctx)
			l.blind = blind
			return l, err
		}, d.login)
		must.Do(t, err)
		d.says(t, l, "hello")
		d.refuse.Store(true)
		d.present().end(0, true)
		for deadline := time.Now().Add(10 * time.Second); l.Away().Broken.IsZero() && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		a := l.Away()
		if got := a.Unanswered.Sub(a.Broken); got < slow == blind || got > liveness.Default().LoginGrace {
			t.Errorf("blind: %v; it has %v to answer", blind, got)
		}
		l.Close()
	}
}

// TestLineGoesOnLooking: a host that does not answer after its connection ended is looked for until it does, or until
// no one wants it any more; meanwhile the line reports since when it is away, and whether the host wanted that.
func TestLineGoesOnLooking(t *testing.T) {
	t.Parallel()
	for _, hungUp := range []bool{false, true} {
		d := newDistant(t)
		l := d.open(t)
		d.says(t, l, "hello")
		if a := l.Away(); !a.Broken.IsZero() {
			t.Errorf("away since %v, and it speaks", a.Broken)
		}
		d.hangsUp.Store(hungUp)
		d.refuse.Store(true)
		struck := time.Now()
		d.present().end(0, true)
		for deadline := struck.Add(10 * time.Second); d.refused.Load() < 10 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if a := l.Away(); a.Broken.Before(struck) || a.Unanswered.Before(struck) || a.HungUp != hungUp {
			t.Errorf("away since %v, silent since %v, hung up %v, want %v since %v", a.Broken, a.Unanswered, a.HungUp, hungUp, struck)
		}
		d.refuse.Store(false)
		d.says(t, l, "and back")
		if a := l.Away(); !a.Broken.IsZero() {
			t.Errorf("away since %v, and it is back", a.Broken)
		}
		d.refuse.Store(true)
		d.present().end(0, true)
		l.Close()
		if _, err := l.Read(make([]byte, 1)); err == nil {
			t.Error("a line that was closed can be read")
		}
		if _, err := l.Wait(); err == nil {
			t.Error("its connection did not break")
		}
	}
}

// TestLineWaitsForBusyHost: a host that answers is not lost, however long it takes to let anyone in.
func TestLineWaitsForBusyHost(t *testing.T) {
	t.Parallel()
	d := newDistant(t)
	l := d.openBy(t, func(ctx context.Context) (*login, error) {
		ssh.Answered(ctx)
		timer := time.NewTimer(3 * liveness.Default().AnswerTimeout)
		defer timer.Stop()
		select {
		case <-timer.C:
			return d.login(ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	d.says(t, l, "hello")
	d.present().end(0, true)
	d.says(t, l, "still here")
}

// TestLineDoubts: a connection that is silent without an end is replaced, also if no one answers at first, as at the
// address that the host had before. That is not waited for as long as for a host that has answered.
func TestLineDoubts(t *testing.T) {
	t.Parallel()
	d := newDistant(t)
	waited := make(chan time.Duration, 1)
	var looked atomic.Bool
	l := d.openBy(t, func(ctx context.Context) (*login, error) {
		if looked.CompareAndSwap(false, true) {
			begun := time.Now()
			<-ctx.Done()
			waited <- time.Since(begun)
			return nil, ctx.Err()
		}
		return d.login(ctx)
	})
	d.says(t, l, "hello")
	d.present().silent.Store(true)
	d.says(t, l, "is anybody there?") // after some seconds, over another one
	if n := d.logins.Load(); n < 2 {
		t.Errorf("%d logins", n)
	}
	if took := <-waited; took > liveness.Default().LoginTimeout/2 {
		t.Errorf("an address where nobody answers was waited for %v", took)
	}
}

// A host whose program has ended the stream may be gone before it hears that all has arrived. No one waits for that.
func TestNobodyListensToTheEnd(t *testing.T) {
	in, out := io.Pipe()
	in.Close() // writes to out fail
	c := carrier{&login{In: out, over: make(chan struct{}), done: make(chan struct{}), Close: func() error { return nil }}}
	var writing sync.WaitGroup
	begun := time.Now()
	writing.Go(func() {
		if _, err := c.Write([]byte("ack")); err == nil {
			t.Error("what nobody reads was written")
		}
	})
	c.Close()
	writing.Wait()
	if took := time.Since(begun); took > lastWords/2 {
		t.Errorf("the end of a connection took %v", took)
	}
}

// TestBegun: a conversation has begun with the first word of the daemon. If the
// connection broke before and the daemon is not found, another try may go well; a daemon that ended has its reasons.
func TestBegun(t *testing.T) {
	for name, tc := range map[string]struct {
		first func(*distant)
		again func(*fakeLogin)
		hurry bool
		want  string // the error, "" for none
	}{
		"it speaks":                  {first: func(d *distant) { d.stream.Write([]byte("hello")) }},
		"another connection":         {first: func(d *distant) { d.present().end(0, true); d.stream.Write([]byte("hello")) }},
		"it ends":                    {first: func(d *distant) { d.present().end(3, false) }},
		"it is gone with the first":  {first: func(d *distant) { d.present().end(0, true) }, again: func(f *fakeLogin) { f.end(1, false) }, want: "the connection broke before the daemon said anything: exit 1"},
		"nobody wants it any longer": {first: func(*distant) {}, hurry: true, want: "context canceled"},
	} {
		d := newDistant(t)
		again := func(ctx context.Context) (*login, error) {
			l, err := d.login(ctx)
			if err == nil && tc.again != nil {
				tc.again(d.present())
			}
			return l, err
		}
		ctx, hurry := context.WithCancel(t.Context())
		l, err := openLine(ctx, bytes.Repeat([]byte("k"), resume.TokenSize), liveness.Default(), d.login, again)
		must.Do(t, err)
		tc.first(d)
		if tc.hurry {
			hurry()
		}
		out, err := l.begun(ctx)
		switch {
		case tc.want != "":
			if err == nil || err.Error() != tc.want || errors.Is(err, ssh.ErrBroken) == tc.hurry {
				t.Errorf("%s: %v, want %q", name, err, tc.want)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			word := make([]byte, 5)
			if n, _ := io.ReadFull(out, word); (n == 5) != (name != "it ends") {
				t.Errorf("%s: read %q", name, word[:n])
			}
		}
		hurry()
		l.Close()
	}
}
