package standing_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/collective/admit/admittest"
	"gorun/contrib/must"
	"gorun/rendezvous/resume"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

func TestMain(m *testing.M) {
	if os.Getenv("GORUN_TEST_JOB") != "" {
		echoes()
		return
	}
	// memberlist does not wait for a probe under way, which lasts at most a second.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// echoes is the daemon of a job here: it sends back what it hears, until it hears no more. It ends with an error if
// it hears an x that is followed by an y.
func echoes() {
	w, err := resume.Wait(os.Stdin)
	if err != nil {
		panic(err)
	}
	for {
		l, patience, err := w.Receive(context.Background())
		if errors.Is(err, resume.ErrNoJob) {
			return
		}
		if err != nil || patience != 0 {
			panic(fmt.Sprint(patience, err))
		}
		if echoOne(l); w.Free() != nil {
			return
		}
	}
}

func echoOne(l net.Listener) {
	s := resume.NewRelay()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { resume.Serve(ctx, l, s, resume.ResidentTimeouts) })
	for buf := make([]byte, 64<<10); ; {
		n, err := s.Read(buf)
		if err != nil {
			break
		}
		if bytes.Contains(buf[:n], []byte("who")) {
			s.Write([]byte(os.Getenv("GORUN_TEST_JOB")))
			continue
		}
		if bytes.Contains(buf[:n], []byte("xy")) {
			fmt.Fprintln(os.Stderr, "it heard xy")
			os.Exit(1)
		}
		s.Write(buf[:n])
	}
	s.Close(time.Second)
	cancel()
	wg.Wait()
}

var (
	key    = keyOf("the cluster's")
	client = standing.Client{Key: key, Version: "v"}
)

// keyOf returns a key, or several, that have names.
func keyOf(names ...string) standing.Key {
	var text []byte
	for _, name := range names {
		text = fmt.Appendf(text, "%x\n", sha256.Sum256([]byte(name)))
	}
	k, err := standing.ParseKey(text)
	if err != nil {
		panic(err)
	}
	return k
}

// member is a daemon whose jobs are echoes.
type member struct {
	t            *testing.T
	addr, gossip string
	stop, kill   func()
	leave        func()
	ended        chan struct{}
	mark         string       // of its daemons of jobs, and their number is appended to it
	started      atomic.Int32 // of them
}

func start(t *testing.T, name string, slots int, join ...string) *member {
	t.Helper()
	return startAt(t, "127.0.0.1:0", name, slots, join...)
}

func startAt(t *testing.T, addr, name string, slots int, join ...string) *member {
	t.Helper()
	return startWith(t, addr, standing.Config{Name: name, Slots: slots, Join: join})
}

func startWith(t *testing.T, addr string, cfg standing.Config) *member {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	must.Do(t, err)
	ctx, cancel := context.WithCancelCause(context.Background())
	now, ready := make(chan struct{}), make(chan string, 1)
	m := &member{t: t, addr: l.Addr().String(), stop: func() { cancel(nil) }, leave: func() { cancel(standing.ErrLeave) }, kill: sync.OnceFunc(func() { close(now) }), ended: make(chan struct{}), mark: fmt.Sprintf("%s-%d.", l.Addr(), os.Getpid())}
	if cfg.Key.Fingerprints() == nil {
		cfg.Key = key
	}
	host, _, err := net.SplitHostPort(m.addr)
	must.Do(t, err)
	cfg.Version, cfg.Listener, cfg.Bind, cfg.Address = "v", l, host, host
	cfg.Command = func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprint("GORUN_TEST_JOB=", m.mark, m.started.Add(1)))
		return cmd
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Ready = func(gossip string) { ready <- gossip }
	go func() {
		defer close(m.ended)
		must.Report(t, standing.Serve(ctx, now, cfg))
	}()
	select {
	case m.gossip = <-ready:
	case <-m.ended:
		t.Fatal("it did not start")
	}
	t.Cleanup(func() {
		m.stop()
		m.kill()
		<-m.ended
	})
	return m
}

func (m *member) jobs() *wire.Jobs {
	m.t.Helper()
	j, err := client.Jobs(m.t.Context(), m.addr)
	must.Do(m.t, err)
	return j
}

func (m *member) reserve(ranks int) *standing.Lease {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	l, err := client.Reserve(ctx, m.addr, wire.Reserve{Ranks: ranks, User: "u"}, nil)
	must.Do(m.t, err)
	return l
}

// begin reserves slots on one daemon, and starts the daemon of a job there. The test ends both.
func (m *member) begin(ranks int) (*standing.Lease, *standing.DaemonStream) {
	m.t.Helper()
	l := m.reserve(ranks)
	m.t.Cleanup(func() { l.Close() })
	s, err := l.Start(m.t.Context(), l.Shares()[0].Host)
	must.Do(m.t, err)
	m.t.Cleanup(func() { s.Close() })
	return l, s
}

// inTime ends a stream on which nothing comes for too long, until stop is called.
func inTime(s *standing.DaemonStream) (stop func() bool) {
	return time.AfterFunc(20*time.Second, func() { s.Fail(os.ErrDeadlineExceeded) }).Stop
}

func echo(t *testing.T, s *standing.DaemonStream) {
	t.Helper()
	defer inTime(s)()
	want := bytes.Repeat([]byte("x"), 1<<20)
	go s.Write(want) // ends with the connection
	got := make([]byte, len(want))
	if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the daemon does not answer: %v", err)
	}
}

func TestJobs(t *testing.T) {
	t.Parallel()
	a := start(t, "a", 2)
	b := start(t, "b", 2, a.gossip)
	must.Soon(t, "cluster of two", func() bool { return len(a.jobs().Members) == 2 && len(b.jobs().Members) == 2 })

	first := b.reserve(3) // a keeps the queue: b reports it
	defer first.Close()
	if len(first.Shares()) != 2 {
		t.Fatalf("3 ranks on %v", first.Shares())
	}
	var streams []*standing.DaemonStream
	for _, share := range first.Shares() {
		s, err := first.Start(t.Context(), share.Host)
		must.Do(t, err)
		echo(t, s)
		streams = append(streams, s)
	}
	must.Soon(t, "used slots", func() bool {
		m := b.jobs().Members
		return m[0].Used == 2 && m[1].Used == 1
	})
	if other, err := first.Start(t.Context(), "z"); err == nil || !strings.HasSuffix(err.Error(), ": no slots on z are reserved") {
		t.Errorf("a daemon where nothing is reserved: %v, %v", other, err)
	}

	// The second waits, and hears why, until the first is over.
	waiting := make(chan string, 10)
	granted := make(chan *standing.Lease)
	go func() {
		l, err := client.Reserve(t.Context(), a.addr, wire.Reserve{Ranks: 4}, func(text string) { waiting <- text })
		must.Report(t, err)
		granted <- l
	}()
	if text := <-waiting; text != "waits for 4 ranks; free are a:0,b:1" {
		t.Errorf("it hears: %s", text)
	}
	if jobs := b.jobs().Jobs; len(jobs) != 2 || jobs[0].Ranks != 3 || jobs[1].Shares != nil {
		t.Errorf("jobs %+v", jobs)
	}
	for _, s := range streams {
		s.Close()
	}
	select {
	case <-granted:
		t.Fatal("slots were given twice")
	default:
	}
	first.Close()
	second := <-granted
	defer second.Close()
	s, err := second.Start(t.Context(), "b")
	must.Do(t, err)
	echo(t, s)
	s.Close()
}

// TestStoppedWaiter: slots that a launcher waited for which is stopped go to the next, and it waits again when it goes
// on.
func TestStoppedWaiter(t *testing.T) {
	t.Parallel()
	a := startWith(t, "127.0.0.1:0", standing.Config{Name: "a", Slots: 2}.Taking(2*time.Second))
	first := a.reserve(2)
	waiting, goOn := make(chan string, 10), make(chan struct{})
	granted := make(chan *standing.Lease, 1)
	go func() {
		l, err := client.Reserve(t.Context(), a.addr, wire.Reserve{Ranks: 2}, func(text string) {
			waiting <- text
			<-goOn // it reads nothing: that is what others see of one that is stopped
		})
		must.Report(t, err)
		granted <- l
	}()
	<-waiting
	first.Close()
	third := a.reserve(1)
	close(goOn)
	if text := <-waiting; text != "waits for 2 ranks; free are a:1" {
		t.Errorf("when it goes on it hears: %s", text)
	}
	third.Close()
	second := <-granted
	if second == nil {
		return
	}
	defer second.Close()
	s, err := second.Start(t.Context(), "a")
	must.Do(t, err)
	echo(t, s)
	s.Close()
}

// saysNo reports whether err is a daemon's refusal, in these words.
func saysNo(err error, text, hint string) bool {
	var refused *standing.RefusedError
	return errors.As(err, &refused) && refused.Text == text && refused.Hint == hint
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	a := start(t, "a", 2)
	other := standing.Client{Key: keyOf("another"), Version: "v"}
	if _, err := other.Reserve(t.Context(), a.addr, wire.Reserve{Ranks: 1}, nil); !errors.Is(err, standing.ErrKey) || !strings.Contains(err.Error(), "the other side does not hold the key of this cluster") {
		t.Errorf("another key: %v", err)
	}
	old := standing.Client{Key: key, Version: "old"}
	if _, err := old.Reserve(t.Context(), a.addr, wire.Reserve{Ranks: 1}, nil); !saysNo(err, "the daemon is gorun v, this is old", "run the same gorun binary on every host") {
		t.Errorf("another version: %v", err)
	}
	if _, err := client.Reserve(t.Context(), a.addr, wire.Reserve{Ranks: 3}, nil); !saysNo(err, "the cluster has a:2: no room for 3 ranks", "gorun ps --cluster … shows what there is") {
		t.Errorf("too many ranks: %v", err)
	}
	// A peer that proves nothing hears nothing of ours, and does not disturb.
	conn := must.Dial(t, a.addr)
	defer conn.Close()
	conn.Write([]byte("\x05\x00\x00\x00hello"))
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if b, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") || bytes.Contains(b, []byte("gorun")) {
		t.Errorf("a stranger hears %q, %v", b, err)
	}
	if len(a.jobs().Members) != 1 {
		t.Error("the daemon is disturbed")
	}
}

// TestHostileKeepNoneOut: connections without the key, from another address or the same, keep no launcher out, even if
// each is opened again that is closed. They do not fill the log either.
func TestHostileKeepNoneOut(t *testing.T) {
	t.Parallel()
	var warned atomic.Int32
	refused := make(chan string, 1000)
	a := startWith(t, "127.0.0.1:0", standing.Config{Name: "a", Slots: 2, Log: slog.New(slog.NewTextHandler(writer(func(line []byte) {
		if bytes.Contains(line, []byte("refused a connection")) {
			warned.Add(1)
			refused <- string(line)
		}
	}), nil))})
	idle := func(from string, n int) (conns []net.Conn) {
		for range n {
			c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", a.addr)
			must.Do(t, err)
			t.Cleanup(func() { c.Close() })
			conns = append(conns, c)
		}
		return conns
	}
	idle("127.0.0.2", 700)
	if line := <-refused; !strings.Contains(line, "from=127.0.0.2:") || !strings.Contains(line, "too many at once that have not authenticated") {
		t.Error(line)
	}
	a.jobs()
	idle("127.0.0.1", 60)
	a.jobs()
	admittest.Flood(t, a.addr, 300, "")
	began := time.Now()
	a.jobs()
	if waited := time.Since(began); waited > 4*time.Second {
		t.Errorf("a launcher waited for %v", waited)
	}
	<-refused
	if n := warned.Load(); n != 2 {
		t.Errorf("%d warnings of two addresses", n)
	}
}

// writer hears what is written.
type writer func(line []byte)

func (w writer) Write(line []byte) (int, error) {
	w(line)
	return len(line), nil
}

func TestDrain(t *testing.T) {
	t.Parallel()
	a := start(t, "a", 1)
	b := start(t, "b", 1, a.gossip)
	must.Soon(t, "cluster of two", func() bool { return len(a.jobs().Members) == 2 && len(b.jobs().Members) == 2 })
	l, s := a.begin(2)
	a.stop()
	must.Soon(t, "word of it", func() bool { return b.jobs().Members[0].Draining }) // and b keeps the queue now
	_, err := client.Reserve(t.Context(), b.addr, wire.Reserve{Ranks: 2}, nil)
	if no, ok := errors.AsType[*standing.RefusedError](err); !ok || !no.Small || no.Text != "the cluster has b:1 (not counted: a, which ends when its jobs have ended): no room for 2 ranks" {
		t.Errorf("a host that drains still counts, or nobody says that it does not: %v", err)
	}
	echo(t, s)
	select {
	case <-a.ended:
		t.Fatal("it did not wait for its job")
	default:
	}
	s.Close()
	l.Close()
	<-a.ended
	must.Soon(t, "word of its end", func() bool { return len(b.jobs().Members) == 1 })
	b.reserve(1).Close()
}

// TestStopAtOnce: the second TERM ends jobs, and their launchers hear of it whether they have begun to speak with them
// or are just about to: no launcher looks for a daemon that will not come back.
func TestStopAtOnce(t *testing.T) {
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			a := start(t, "a", 1)
			_, s := a.begin(1)
			if i%2 == 0 {
				echo(t, s)
			}
			a.stop()
			a.kill()
			defer inTime(s)()
			if _, err := s.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("its launcher hears: %v", err)
			}
			<-a.ended
		})
	}
}

// awaitShares waits until an elastic job has these slots.
func awaitShares(t *testing.T, l *standing.Lease, want string) {
	t.Helper()
	must.Soon(t, want, func() bool {
		var list []string
		for _, s := range l.Shares() {
			list = append(list, fmt.Sprintf("%s:%d", s.Host, s.Slots))
		}
		return strings.Join(list, ",") == want
	})
}

// TestElastic: a job gets more when there is more, loses what goes, and gets it back when it returns.
func TestElastic(t *testing.T) {
	t.Parallel()
	a := start(t, "a", 1)
	l, err := client.Reserve(t.Context(), a.addr, wire.Reserve{Ranks: 1, Elastic: true, Most: 3}, nil)
	must.Do(t, err)
	defer l.Close()
	awaitShares(t, l, "a:1")
	b := start(t, "b", 1, a.gossip)
	awaitShares(t, l, "a:1,b:1")
	start(t, "c", 4, a.gossip) // two would be too many
	awaitShares(t, l, "a:1,b:1,c:1")
	before := l.Shares()[1].Born
	b.stop() // it drains
	awaitShares(t, l, "a:1,c:1")
	<-b.ended
	start(t, "b", 1, a.gossip)
	awaitShares(t, l, "a:1,c:1,b:1")
	if l.Shares()[2].Born == before {
		t.Error("another daemon looks like the one before")
	}
}

// TestKeeperGoes: a job keeps its slots when the daemon that kept the queue ends, and when another one keeps it.
func TestKeeperGoes(t *testing.T) {
	t.Parallel()
	b := start(t, "b", 2)
	c := start(t, "c", 2, b.gossip)
	must.Soon(t, "cluster of two", func() bool { return len(b.jobs().Members) == 2 && len(c.jobs().Members) == 2 })
	l := c.reserve(3)
	defer l.Close()
	jobs := func(m *member, want string) {
		t.Helper()
		must.Soon(t, want, func() bool {
			j, err := client.Jobs(t.Context(), m.addr)
			if err != nil || len(j.Jobs) != 1 {
				return false
			}
			var list []string
			for _, s := range j.Jobs[0].Shares {
				list = append(list, fmt.Sprintf("%s:%d", s.Host, s.Slots))
			}
			return strings.Join(list, ",") == want
		})
	}
	jobs(c, "b:2,c:1")
	a := start(t, "a", 2, c.gossip) // the first by name
	jobs(c, "b:2,c:1")
	must.Soon(t, "word of the new keeper", func() bool { return len(b.jobs().Members) == 3 })
	jobs(a, "b:2,c:1")
	a.stop()
	<-a.ended
	jobs(c, "b:2,c:1")
}

// TestQueueHolderIsLost: a job that waits for slots where the queue is kept goes on waiting when that daemon is lost,
// and gets them of the one that keeps the queue then, which is also where jobs that come meanwhile are sent.
func TestQueueHolderIsLost(t *testing.T) {
	t.Parallel()
	a := start(t, "a", 2)
	b := start(t, "b", 2, a.gossip)
	must.Soon(t, "cluster of two", func() bool { return len(a.jobs().Members) == 2 && len(b.jobs().Members) == 2 })
	held := b.reserve(3)
	said := make(chan string, 100)
	type outcome struct {
		lease *standing.Lease
		err   error
	}
	got := make(chan outcome, 2)
	reserve := func() {
		l, err := client.Reserve(t.Context(), b.addr, wire.Reserve{Ranks: 2}, func(text string) { said <- text })
		got <- outcome{l, err}
	}
	go reserve()
	if text := <-said; !strings.HasPrefix(text, "waits for 2 ranks") {
		t.Errorf("it %s", text)
	}
	a.leave() // which reports it to none
	<-a.ended
	if text, want := <-said, "waits for another daemon to keep the queue: that at "+a.addr+" cannot be reached"; text != want {
		t.Errorf("it %s, want %s", text, want)
	}
	go reserve()
	if text := <-said; !strings.HasPrefix(text, "waits for another daemon to keep the queue") {
		t.Errorf("the next one %s", text)
	}
	held.Close()
	startAt(t, a.addr, "a", 2, b.gossip)
	for range 2 {
		select {
		case o := <-got:
			if o.err != nil {
				t.Fatal(o.err)
			}
			defer o.lease.Close()
		case <-time.After(50 * time.Second):
			t.Fatal("a job does not get slots")
		}
	}
}

// TestReturnsElsewhere: a daemon that was killed and comes back at another address, as a pod does, is a member again at once,
// although gossip still waits for the one that was killed.
func TestReturnsElsewhere(t *testing.T) {
	t.Parallel()
	a := start(t, "a", 2)
	b := start(t, "b", 1, a.gossip)
	must.Soon(t, "cluster of two", func() bool { return len(a.jobs().Members) == 2 })
	b.leave() // which reports it to none
	<-b.ended
	begin := time.Now()
	c := start(t, "b", 3, a.gossip)
	must.Soon(t, "one in its place", func() bool {
		all := a.jobs().Members
		return len(all) == 2 && all[1].Host == "b" && all[1].Addr == c.addr && all[1].Slots == 3
	})
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	l := a.reserve(5)
	defer l.Close()
	s, err := l.Start(t.Context(), "b")
	must.Do(t, err)
	echo(t, s)
	s.Close()
}

// TestRestart: a daemon is replaced, and the job that it started goes on: nothing of what is sent to it and by it is
// lost, its slots count, and it ends with its launcher.
func TestRestart(t *testing.T) {
	t.Parallel()
	a := start(t, "a", 2)
	l, s := a.begin(1)
	echo(t, s)
	for range 3 {
		if _, err := s.Write([]byte("before,")); err != nil {
			t.Fatal(err)
		}
		a.leave()
		<-a.ended
		if _, err := s.Write([]byte("while")); err != nil {
			t.Fatal(err)
		}
		a = startAt(t, a.addr, "a", 2)
		got := make([]byte, len("before,while"))
		stop := inTime(s)
		if _, err := io.ReadFull(s, got); err != nil || string(got) != "before,while" {
			t.Fatalf("%q, %v", got, err)
		}
		stop()
		must.Soon(t, "word of its slots", func() bool {
			j, err := client.Jobs(t.Context(), a.addr)
			return err == nil && len(j.Members) == 1 && j.Members[0].Used == 1 && len(j.Jobs) == 1
		})
	}
	echo(t, s)
	s.Close()
	l.Close()
	must.Soon(t, "its end", func() bool {
		j, err := client.Jobs(t.Context(), a.addr)
		return err == nil && j.Members[0].Used == 0
	})
}

// TestForgottenConnection: a connection that brings nothing any more, and does not end, is replaced by another one long
// before TCP gives it up.
func TestForgottenConnection(t *testing.T) {
	t.Parallel()
	a := start(t, "a", 1)
	l := a.reserve(1)
	defer l.Close()
	w := newWall(t, a.addr)
	l.By("a", w.addr)
	s, err := l.Start(t.Context(), "a")
	must.Do(t, err)
	defer s.Close()
	echo(t, s)
	w.forget()
	began := time.Now()
	echo(t, s) // which ends after 20 s
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it went on after %v: the connection was not forgotten", took)
	}
	if n := w.taken.Load(); n < 2 {
		t.Errorf("%d connections", n)
	}
}

// wall stands between a launcher and a daemon, as a firewall that can forget what connections there are: it lets
// nothing of them through any more, and lets no end know.
type wall struct {
	addr  string
	taken atomic.Int32

	mu    sync.Mutex
	known map[net.Conn]bool
}

func newWall(t *testing.T, to string) *wall {
	t.Helper()
	l := must.Listen(t)
	w := &wall{addr: l.Addr().String(), known: map[net.Conn]bool{}}
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			w.taken.Add(1)
			passing.Go(func() { w.pass(conn, to) })
		}
	})
	t.Cleanup(func() { l.Close(); passing.Wait() })
	return w
}

func (w *wall) pass(conn net.Conn, to string) {
	other, err := net.Dial("tcp", to)
	if err != nil {
		conn.Close()
		return
	}
	w.mu.Lock()
	w.known[conn] = true
	w.mu.Unlock()
	var both sync.WaitGroup
	through := func(from, to net.Conn) {
		defer from.Close()
		defer to.Close()
		for buf := make([]byte, 64<<10); ; {
			n, err := from.Read(buf)
			w.mu.Lock()
			known := w.known[conn]
			w.mu.Unlock()
			if err != nil {
				return
			}
			if known {
				to.Write(buf[:n])
			}
		}
	}
	both.Go(func() { through(conn, other) })
	both.Go(func() { through(other, conn) })
	both.Wait()
}

func (w *wall) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.known)
}

// TestLastLineIsShown: a daemon that ends is not looked for, and the last line that it wrote is shown.
func TestLastLineIsShown(t *testing.T) {
	t.Parallel()
	_, s := start(t, "a", 1).begin(1)
	s.Write([]byte("xy"))
	defer inTime(s)()
	if _, err := s.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "it heard xy") {
		t.Errorf("its end: %v", err)
	}
}

// TestKilledLauncher: a launcher that vanishes without a goodbye leaves nothing behind.
func TestKilledLauncher(t *testing.T) {
	t.Parallel()
	a := start(t, "a", 1)
	l, s := a.begin(1)
	echo(t, s)
	standing.Vanish(s)
	l.Close()
	_, again := a.begin(1) // which waits for the slot, but not for ever
	echo(t, again)
}

// TestFollowsNames: daemons that look for others by name find each other when the name gets their addresses, whichever
// of them has started first.
func TestFollowsNames(t *testing.T) {
	t.Parallel()
	var addrs atomic.Pointer[[]string]
	addrs.Store(new([]string))
	look := func(context.Context) []string { return *addrs.Load() }
	a := startWith(t, "127.0.0.1:0", standing.Config{Name: "a", Slots: 1, Look: look})
	b := startWith(t, "127.0.0.1:0", standing.Config{Name: "b", Slots: 1, Look: look})
	if n := len(a.jobs().Members); n != 1 {
		t.Errorf("%d members before the name has addresses", n)
	}
	addrs.Store(&[]string{"127.0.0.1:1", a.gossip, b.gossip})
	must.Soon(t, "cluster of two", func() bool { return len(a.jobs().Members) == 2 && len(b.jobs().Members) == 2 })
	c := startWith(t, "127.0.0.1:0", standing.Config{Name: "c", Slots: 1, Look: look})
	must.Soon(t, "cluster of three", func() bool { return len(a.jobs().Members) == 3 && len(c.jobs().Members) == 3 })
}
