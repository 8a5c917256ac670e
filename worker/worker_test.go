package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/probe"
	"gorun/worker/proc"
	"gorun/worker/rank"
)

func TestAddressOrder(t *testing.T) {
	hint := netip.MustParseAddr("10.1.0.7")
	for name, tc := range map[string]struct{ first, second netip.Addr }{
		"the way that was tried comes first": {hint, netip.MustParseAddr("10.0.0.1")},
		"even if it is IPv6":                 {hint, netip.MustParseAddr("2001:db8::1")},
		"IPv4 before IPv6":                   {netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")},
	} {
		addrs := []netip.Addr{tc.second, tc.first}
		if topology.Prefer(addrs, hint); addrs[0] != tc.first {
			t.Errorf("%s: %v does not come before %v", name, tc.first, tc.second)
		}
	}
	if got := probe.SourceToward("127.0.0.1"); got != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("packets to 127.0.0.1 leave from %v", got)
	}
	if got := probe.SourceToward("no-such-host.invalid"); got.IsValid() {
		t.Errorf("packets to nowhere leave from %v", got)
	}
}

// conversation is a launcher's side of a daemon that runs in this process.
type conversation struct {
	t        *testing.T
	to       *wire.Writer
	from     *wire.Reader
	hang     func()      // closes the daemon's input
	breakOff func(error) // does so without a goodbye
	ended    chan error
	elastic  bool // its job
}

func startDaemon(t *testing.T) *conversation { return startDaemonWith(t, t.Context(), Config{}) }

func startDaemonWith(t *testing.T, ctx context.Context, cfg Config) *conversation {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := &conversation{t: t, to: wire.NewWriter(inW), from: wire.NewReader(outR), hang: func() { inW.Close() }, breakOff: func(err error) { inW.CloseWithError(err) }, ended: make(chan error, 1)}
	cfg.In, cfg.Out, cfg.Version, cfg.Exe, cfg.Env = inR, outW, "test", "/nowhere/gorun", []string{"PATH=/usr/bin:/bin"}
	go func() {
		c.ended <- Run(ctx, cfg)
		outW.Close()
	}()
	t.Cleanup(func() { outR.Close(); inW.Close() })
	return c
}

// await returns the next message of type M and drops others.
func await[M wire.Message](c *conversation) M {
	c.t.Helper()
	for {
		m, err := c.from.Read()
		if err != nil {
			c.t.Fatalf("waiting for %T: %v", *new(M), err)
		}
		if found, ok := m.(M); ok {
			return found
		}
	}
}

// stop asks the daemon to stop and waits for its end.
func (c *conversation) stop() {
	c.t.Helper()
	must.Do(c.t, c.to.Write(&wire.Stop{}))
	await[*wire.Done](c)
	c.end()
}

// end waits for the end of the daemon.
func (c *conversation) end() {
	c.t.Helper()
	go io.Copy(io.Discard, readerFunc(func(b []byte) (int, error) { _, err := c.from.Read(); return 0, err }))
	select {
	case err := <-c.ended:
		must.Do(c.t, err)
	case <-time.After(20 * time.Second):
		c.t.Fatal("the daemon does not end")
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func (c *conversation) begin(argv ...string) {
	c.t.Helper()
	c.enter(false, argv)
}

// enter goes through a start up to the roster, whose world may be formed later, with joiners in it.
func (c *conversation) enter(later bool, argv []string, joiners ...wire.Peer) {
	c.t.Helper()
	if hello := await[*wire.Hello](c); hello.Proto != wire.Proto || hello.Version != "test" {
		c.t.Errorf("hello %+v", hello)
	}
	job := &wire.Job{ID: "0123456789abcdef", Secret: make([]byte, 32), Name: "here", Alone: true, Elastic: c.elastic, Slots: 1, Argv: argv, Dir: "/", JobOptions: wire.JobOptions{Grace: time.Second}}
	for _, m := range []wire.Message{&wire.Alive{}, job, &wire.Alive{}} {
		must.Do(c.t, c.to.Write(m))
	}
	ready := await[*wire.Ready](c)
	peers := append([]wire.Peer{{Name: "here", Gossip: ready.Gossip, Data: ready.Data, Ranks: []int{0}}}, joiners...)
	if err := c.to.Write(&wire.Roster{Epoch: 1, Size: len(peers), Later: later, Ranks: []wire.Rank{{CrossSize: len(peers), Env: []string{"GREETING=hello"}}},
		Peers:      peers,
		MasterAddr: "127.0.0.1", MasterPort: ready.Port}); err != nil {
		c.t.Fatal(err)
	}
}

// TestOneHost goes through a whole job: world, output, exit, stop, done.
func TestOneHost(t *testing.T) {
	c := startDaemon(t)
	c.begin("sh", "-c", `echo $GREETING $MASTER_ADDR; exit 3`)
	if w := await[*wire.Committed](c).World; w.Epoch != 1 || !slices.Equal(w.Order, []int{0}) {
		t.Errorf("world %+v", w)
	}
	if out := await[*wire.Output](c); string(out.Data) != "hello 127.0.0.1\n" || out.Stream != wire.Stdout {
		t.Errorf("output %+v", out)
	}
	if e := await[*wire.Exited](c); e.Code != 3 || e.Asked {
		t.Errorf("exit %+v", e)
	}
	c.stop()
}

// TestWorldLater: ranks run before there is a world, a rank that asks for it is reported, and the launcher decides
// when.
func TestWorldLater(t *testing.T) {
	c := startDaemon(t)
	c.enter(true, []string{"sh", "-c", `echo $GORUN_SOCKET $GORUN_TOKEN; read line`})
	var socket, token string
	for socket == "" {
		m, err := c.from.Read()
		must.Do(t, err)
		switch m := m.(type) {
		case *wire.Output:
			if _, err := fmt.Sscan(string(m.Data), &socket, &token); err != nil {
				t.Fatalf("the rank says %q: %v", m.Data, err)
			}
		case *wire.Committed, *wire.Wanted:
			t.Fatalf("%T before a rank has asked", m)
		}
	}
	type outcome struct {
		rank *rank.Session
		err  error
	}
	joined := make(chan outcome, 1)
	go func() {
		rank, err := rank.JoinJob(t.Context(), func(name string) string {
			return map[string]string{"GORUN_SOCKET": socket, "GORUN_TOKEN": token, "GORUN_PROCESS": "0", "HOROVOD_RANK": "0"}[name]
		})
		joined <- outcome{rank, err}
	}()
	await[*wire.Wanted](c)
	for _, m := range []wire.Message{&wire.Form{Epoch: 2}, &wire.Form{Epoch: 1}, &wire.Form{Epoch: 1}} { // only the second sends anything
		must.Do(t, c.to.Write(m))
	}
	if w := await[*wire.Committed](c).World; w.Epoch != 1 {
		t.Errorf("world %+v", w)
	}
	o := <-joined
	must.Do(t, o.err)
	if o.rank.Welcome.Epoch != 1 || o.rank.Welcome.Size != 1 {
		t.Errorf("the rank is in %+v", o.rank.Welcome)
	}
	must.Do(t, o.rank.Close())
	c.stop()
}

// TestLauncherLostBeforeWorld: a daemon that runs ranks before there is a world waits for its launcher no longer than one that
// runs them in a world. Without ranks it has nothing to lose.
func TestLauncherLostBeforeWorld(t *testing.T) {
	lease := NewLauncherLease()
	c := startDaemonWith(t, t.Context(), Config{LauncherLease: lease})
	if !lease.Extend(2 * time.Second) {
		t.Error("a daemon without ranks waits for two seconds only")
	}
	c.enter(true, []string{"sh", "-c", "read line"})
	await[*wire.Started](c)
	if lease.Extend(2 * time.Second) {
		t.Error("a daemon with ranks waits for longer")
	}
	c.stop()
}

// TestPauseBeforeWorld: a host that moves, or is paused, while its world is not formed yet greets no one, and goes
// on.
func TestPauseBeforeWorld(t *testing.T) {
	c := startDaemon(t)
	c.enter(true, []string{"sh", "-c", "read line"}, wire.Peer{ID: 1, Name: "there", Gossip: "127.0.0.1:1", Data: []string{"127.0.0.1:1"}, Ranks: []int{1}})
	await[*wire.Started](c)
	must.Do(t, c.to.Write(&wire.Migrating{State: wire.MoveEnds, Text: "was moved"}))
	if m := await[*wire.Migrating](c); m.State != wire.MoveEnds || m.Text != "was moved" {
		t.Errorf("the daemon says %+v", m)
	}
	c.stop()
}

// TestLauncherGone: the end of its input is the end of the daemon's job.
func TestLauncherGone(t *testing.T) {
	c := startDaemon(t)
	c.begin("sleep", "1000")
	await[*wire.Started](c)
	c.hang()
	c.end()
}

// TestLauncherLost: a launcher that is not heard any more ends the daemon's job as well; the host logs why its ranks
// were ended.
func TestLauncherLost(t *testing.T) {
	said := make(chan string, 1)
	c := startDaemonWith(t, t.Context(), Config{Report: func(text string) { said <- text }})
	c.begin("/bin/sleep", "1000")
	await[*wire.Started](c)
	c.breakOff(errors.New("nothing was heard of the launcher any more"))
	c.end()
	const want = "job 0123456789abcdef, sleep: nothing was heard of the launcher any more: its ranks on this host are ended"
	if text := <-said; text != want {
		t.Errorf("the host is told %q, want %q", text, want)
	}
}

// TestUnfinished: an MPI program that exits with 0 without MPI_Finalize has not ended well.
func TestUnfinished(t *testing.T) {
	const hello = `printf 'cmd=init pmi_version=1 pmi_subversion=1\n' >&$PMI_FD; read answer <&$PMI_FD; `
	for name, tc := range map[string]struct {
		program string
		want    wire.Exited
	}{
		"MPI":      {hello + `printf 'cmd=finalize\n' >&$PMI_FD`, wire.Exited{}},
		"no MPI":   {"true", wire.Exited{}},
		"exit":     {hello + "exit 0", wire.Exited{Code: 1, Unfinished: true}},
		"exit (3)": {hello + "exit 3", wire.Exited{Code: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			c := startDaemon(t)
			c.begin("sh", "-c", tc.program)
			var err error
			if tc.want.File, err = exec.LookPath("sh"); err != nil {
				t.Fatal(err)
			}
			if e := await[*wire.Exited](c); *e != tc.want {
				t.Errorf("exit %+v, want %+v", *e, tc.want)
			}
			c.stop()
		})
	}
}

// TestShutDown: a host that is shut down ends its ranks and its daemon at once, whichever is heard first: a rank that
// ends so has not failed. One that is ended alone has.
func TestShutDown(t *testing.T) {
	running, stop := context.WithCancelCause(t.Context())
	c := startDaemonWith(t, running, Config{shutdownGrace: 2 * time.Second})
	c.elastic = true
	c.begin("sleep", "1000")
	must.Do(t, syscall.Kill(await[*wire.Started](c).PID, syscall.SIGTERM))
	time.Sleep(100 * time.Millisecond) // the rank ends first
	stop(errors.New("stopped by SIGTERM"))
	if f := await[*wire.Failed](c); f.Text != "stopped by SIGTERM" {
		t.Errorf("the daemon says %+v", f)
	}
	if e := await[*wire.Exited](c); !e.Asked || e.Signal != int(syscall.SIGTERM) {
		t.Errorf("exit %+v", e)
	}
	c.end()

	c = startDaemon(t)
	c.elastic = true
	c.begin("sleep", "1000")
	must.Do(t, syscall.Kill(await[*wire.Started](c).PID, syscall.SIGTERM))
	if e := await[*wire.Exited](c); e.Asked || e.Code != 143 {
		t.Errorf("exit %+v", e)
	}
	c.stop()
}

// TestDaemonStopped: a daemon that is ended by others than its launcher reports that before it ends its ranks, and
// waits until that is heard.
func TestDaemonStopped(t *testing.T) {
	running, stop := context.WithCancelCause(t.Context())
	heard, waited := make(chan struct{}), make(chan struct{})
	c := startDaemonWith(t, running, Config{Flush: func(time.Duration) bool {
		<-heard
		close(waited)
		return true
	}})
	c.begin("sleep", "1000")
	await[*wire.Started](c)
	stop(proc.ErrSupervisorDied)
	for {
		m, err := c.from.Read()
		must.Do(t, err)
		if _, ended := m.(*wire.Exited); ended {
			t.Fatal("the rank's end comes first")
		}
		if f, ok := m.(*wire.Failed); ok {
			if f.Step != "run" || f.Text != "the supervisor of the daemon was killed" || f.Code != 255 {
				t.Errorf("the daemon says %+v", f)
			}
			break
		}
	}
	close(heard)
	if e := await[*wire.Exited](c); !e.Asked || e.Code != 137 {
		t.Errorf("exit %+v", e)
	}
	select {
	case <-waited:
	default:
		t.Error("it did not wait until that was heard")
	}
	c.end()
}

// TestIncompleteJob: a job without a secret or a program does not begin.
func TestIncompleteJob(t *testing.T) {
	d := &daemon{job: &wire.Job{}}
	if err := d.open(t.Context(), t.Context()); err == nil || err.Error() != "check job: incomplete" {
		t.Errorf("open: %v", err)
	}
}
