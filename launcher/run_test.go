package launcher_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/contrib/must"
	"gorun/launcher"
	"gorun/launcher/failure"
	"gorun/launcher/hosts"
	"gorun/launcher/plan"
	"gorun/launcher/ssh"
	"gorun/launcher/talk"
	"gorun/launcher/why"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// conversation is a daemon's side of the protocol, scripted by a test.
type conversation struct {
	t    *testing.T
	in   *wire.Reader
	out  *wire.Writer
	job  *wire.Job
	told *wire.Peers
	at   *wire.Roster

	machine string // that the host is
	python  map[string]string

	later func() // is called when the ranks run and there is no world yet; may be nil
}

func (c *conversation) say(m wire.Message) { c.out.Write(m) }

// hear returns the next message, nil when the launcher hung up. A roster comes with the peers that were sent before it;
// neither the launcher's signs of life nor its questions after the use of a host are messages.
func (c *conversation) hear() wire.Message {
	for {
		m, err := c.in.Read()
		if err != nil {
			return nil
		}
		switch m := m.(type) {
		case *wire.Alive, *wire.AskUsage: // which come once a second
			continue
		case *wire.Peers:
			c.told = m
			continue
		case *wire.Roster:
			if m.Peers == nil && c.told != nil && c.told.Epoch == m.Epoch {
				m.Peers = c.told.Peers
			}
		}
		return m
	}
}

// begin goes through a start that succeeds, up to the ranks' processes.
func (c *conversation) begin() bool {
	c.say(&wire.Hello{Proto: wire.Proto, Version: "test"})
	job, ok := c.hear().(*wire.Job)
	if !ok {
		return false
	}
	c.job = job
	c.say(&wire.Ready{Gossip: "10.0.0.1:1", Data: []string{"10.0.0.1:2"}, Port: 3, Host: topology.Host{CPUs: 2, Identity: c.machine}, Python: c.python})
	switch m := c.hear().(type) {
	case *wire.Roster:
		c.at = m
	case *wire.Stop:
		c.say(&wire.Done{})
		return false
	default:
		return false
	}
	if !c.at.Later {
		c.enter()
	}
	for _, r := range c.at.Ranks {
		c.say(&wire.Started{Process: r.Process, PID: 100 + r.Process})
	}
	if c.at.Later && c.later != nil {
		c.later()
	}
	return true
}

// enter commits the world of the roster.
func (c *conversation) enter() {
	var order []int
	for _, p := range c.at.Peers {
		order = append(order, p.ID)
	}
	c.say(&wire.Committed{World: wire.World{Epoch: c.at.Epoch, Order: order}})
}

// exit ends all ranks of the host well, and then as end does.
func (c *conversation) exit() {
	for _, r := range c.at.Ranks {
		c.say(&wire.Exited{Process: r.Process})
	}
	c.end()
}

// end waits for the order to stop and sends Done.
func (c *conversation) end() {
	for {
		switch c.hear().(type) {
		case nil:
			return
		case *wire.Stop:
			c.say(&wire.Done{})
			return
		}
	}
}

// script is a Dialer whose daemons are functions.
type script struct {
	t       *testing.T
	daemons map[string]func(*conversation)
	refuse  map[string]error
	who     map[string]talk.Identity
	answers bool                       // hosts, before there is a daemon
	closing func(line context.Context) // is called when the launcher closes its connection to a daemon; may be nil
	wg      sync.WaitGroup
}

func (s *script) Dial(line context.Context, host string) (*talk.Daemon, error) {
	if err := s.refuse[host]; err != nil {
		return nil, err
	}
	if s.answers {
		ssh.Answered(line)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s.wg.Go(func() {
		s.daemons[host](&conversation{t: s.t, in: wire.NewReader(inR), out: wire.NewWriter(outW)})
		outW.Close()
		io.Copy(io.Discard, inR)
	})
	return &talk.Daemon{In: inW, Out: outR, Remote: true, Identity: s.who[host], Wait: func() (string, error) { return "", nil }, Close: func() error {
		if s.closing != nil {
			s.closing(line)
		}
		inW.Close()
		return outR.Close()
	}}, nil
}

// recorder is an Output that remembers.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) Write(rank int, stream wire.OutputStream, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf("%d/%d:%s", rank, stream, data))
}
func (r *recorder) Close(int) {}
func (r *recorder) Hurry()    {}
func (r *recorder) Tail(rank int) []string {
	return []string{fmt.Sprint("tail of ", rank)}
}

func start(t *testing.T, ctx context.Context, s *script, change func(*launcher.Spec)) (*recorder, []string, error) {
	t.Helper()
	placement, err := plan.Place([]hosts.ListedHost{{Name: "a", Slots: 2}, {Name: "b", Slots: 2}}, 4, plan.Policy{})
	must.Do(t, err)
	rec := &recorder{}
	var notes []string
	spec := launcher.Spec{Placement: placement, Programs: []launcher.Program{{Argv: []string{"true"}, Dir: "/"}}, Env: []string{"X=1", "SSH_TTY=t"}, Version: "test", JobOptions: wire.JobOptions{Verbose: true, Grace: time.Second},
		StartTimeout: 20 * time.Second, Dial: s, Output: rec,
		Note: func(f string, a ...any) { notes = append(notes, fmt.Sprintf(f, a...)) }}
	if change != nil {
		change(&spec)
	}
	err = launcher.Run(ctx, spec)
	s.wg.Wait()
	return rec, notes, err
}

// begun is a daemon that does something once it has its part of the world.
func begun(f func(*conversation)) func(*conversation) {
	return func(c *conversation) {
		if c.begin() {
			f(c)
		}
	}
}

func both(f func(*conversation)) map[string]func(*conversation) {
	return map[string]func(*conversation){"a": begun(f), "b": begun(f)}
}

// saying has the daemons of hosts report messages and end, or fall silent where one is nil.
func saying(says map[string][]wire.Message) map[string]func(*conversation) {
	return both(func(c *conversation) {
		for _, m := range says[c.job.Name] {
			if m == nil {
				return
			}
			c.say(m)
		}
		c.end()
	})
}

func TestSuccess(t *testing.T) {
	s := &script{t: t, daemons: both(func(c *conversation) {
		if got := c.job.Env; len(got) != 1 || got[0] != "X=1" {
			t.Errorf("ranks would get %v", got)
		}
		for _, r := range c.at.Ranks {
			c.say(&wire.Output{Process: r.Process, Stream: wire.Stdout, Data: []byte("hi")})
			c.say(&wire.Output{Process: 3 - r.Process, Stream: wire.Stdout, Data: []byte("forged")}) // a rank of the other host
			c.say(&wire.Exited{Process: r.Process})
		}
		c.end()
	})}
	rec, notes, err := start(t, t.Context(), s, nil)
	must.Do(t, err)
	if len(rec.lines) != 4 {
		t.Errorf("output %q", rec.lines)
	}
	if all := strings.Join(notes, "\n"); !strings.Contains(all, "epoch 1, ring: a → b → (a)") {
		t.Errorf("notes lack the ring:\n%s", all)
	}
}

// unread is the output of a job at a terminal that takes nothing.
type unread struct {
	*recorder
	full, hurried chan struct{}
	once          sync.Once
}

func (u *unread) Write(int, wire.OutputStream, []byte) { u.full <- struct{}{}; <-u.hurried }
func (u *unread) Hurry()                               { u.once.Do(func() { close(u.hurried) }) }

// TestUnreadOutput checks that gorun why accuses no host if nobody reads the job's output, and that the job can be
// stopped.
func TestUnreadOutput(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	s := &script{t: t, daemons: both(func(c *conversation) {
		c.say(&wire.Output{Process: c.at.Ranks[0].Process, Stream: wire.Stdout, Data: []byte("x")})
		c.end()
	})}
	whys, found := make(chan launcher.Why), make(chan []why.Finding, 1)
	out := &unread{full: make(chan struct{}), hurried: make(chan struct{})}
	var verdict string
	go func() {
		<-out.full
		<-out.full
		whys <- launcher.Why{Answer: found}
		verdict, _ = why.Explain(<-found)
		stop(failure.ErrStopped)
	}()
	rec, _, err := start(t, ctx, s, func(spec *launcher.Spec) {
		out.recorder = spec.Output.(*recorder)
		spec.Output, spec.Whys, spec.Grace = out, whys, time.Hour
	})
	if !errors.Is(err, failure.ErrStopped) || len(rec.lines) != 0 {
		t.Errorf("ended with %v, output %q", err, rec.lines)
	}
	if !strings.Contains(verdict, "nobody reads the output of gorun") || !strings.HasSuffix(verdict, "ranks 0-1 on a and ranks 2-3 on b") {
		t.Error(verdict)
	}
}

// TestGoodbyeComesFirst: when the last host is done its connection is not cut before it has heard that no one comes
// back, or another login would have to send that.
func TestGoodbyeComesFirst(t *testing.T) {
	var mu sync.Mutex
	said := map[context.Context]bool{} // of connections, whether they were cut before they were closed for the first time
	s := &script{t: t, daemons: both((*conversation).exit), closing: func(line context.Context) {
		runtime.Gosched() // so long that it could be cut
		mu.Lock()
		defer mu.Unlock()
		if _, again := said[line]; !again {
			said[line] = line.Err() != nil
		}
	}}
	if _, _, err := start(t, t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(said) != 2 {
		t.Errorf("%d connections were closed", len(said))
	}
	for _, cut := range said {
		if cut {
			t.Error("a connection was cut before its daemon was informed")
		}
	}
}

// TestFirstFailureDecides: what ranks do after the order to stop is no verdict.
func TestFirstFailureDecides(t *testing.T) {
	s := &script{t: t, daemons: map[string]func(*conversation){
		"a": begun(func(c *conversation) {
			for {
				switch c.hear().(type) {
				case nil:
					return
				case *wire.Stop:
					c.say(&wire.Exited{Process: 0, Code: 143, Signal: 15, Asked: true})
					c.say(&wire.Exited{Process: 1, Code: 1, Asked: true})
					c.say(&wire.Done{})
					return
				}
			}
		}),
		"b": begun(func(c *conversation) {
			c.say(&wire.Exited{Process: 3, Code: 7})
			c.end()
		}),
	}}
	_, _, err := start(t, t.Context(), s, nil)
	var re *failure.RankError
	if !errors.As(err, &re) || re.Rank != 3 || re.Host != "b" || re.Code != 7 || re.Tail[0] != "tail of 3" {
		t.Fatalf("verdict %#v", err)
	}
}

// TestNobodyAsked: a daemon that stops its ranks, or ends before them, without the launcher's word ends no job well.
func TestNobodyAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		last wire.Message
		want string
	}{
		"killed by the daemon":   {&wire.Exited{Process: 3, Code: 137, Signal: 9, Asked: true}, "the daemon has stopped its ranks by itself"},
		"ended well when told":   {&wire.Exited{Process: 3, Asked: true}, "the daemon has stopped its ranks by itself"},
		"the daemon's last word": {&wire.Done{}, "the daemon ended before its ranks"},
		"its reason": {&wire.Failed{Step: "run", Text: "the supervisor of the daemon was killed", Code: 255, Peer: 1},
			"the supervisor of the daemon was killed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{t: t, daemons: saying(map[string][]wire.Message{
				"a": {&wire.Exited{Process: 0}, &wire.Exited{Process: 1}},
				"b": {&wire.Exited{Process: 2}, tc.last, &wire.Exited{Process: 3, Code: 143, Signal: 15, Asked: true}, nil},
			})}
			_, _, err := start(t, t.Context(), s, nil)
			var he *failure.HostError
			if !errors.As(err, &he) || he.Host != "b" || he.Err.Error() != tc.want || he.ExitCode() != failure.ExitTransport {
				t.Fatalf("verdict %#v", err)
			}
		})
	}
}

// TestStuckFence: ranks that wait in MPI's barrier for one that has ended wait for ever, so the job ends; which of it a
// launcher hears first is chance.
func TestStuckFence(t *testing.T) {
	arrives, exits := &wire.Fence{Number: 1}, &wire.Exited{Process: 3}
	for name, says := range map[string]struct{ a, b []wire.Message }{
		"on another host": {[]wire.Message{arrives}, []wire.Message{exits}},
		"on its host":     {nil, []wire.Message{exits, &wire.Stuck{Ended: 3, Waiting: []int{2}}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{t: t, daemons: saying(map[string][]wire.Message{"a": says.a, "b": says.b})}
			_, _, err := start(t, t.Context(), s, nil)
			want := map[string]string{
				"on another host": "b: run: rank 3 has ended, and ranks 0-1 will wait for it for ever, in a barrier of MPI's",
				"on its host":     "b: run: rank 3 has ended, and rank 2 will wait for it for ever, in a barrier of MPI's",
			}[name]
			var he *failure.HostError
			if !errors.As(err, &he) || he.Error() != want || he.ExitCode() != failure.ExitFailure {
				t.Fatalf("verdict %v", err)
			}
		})
	}
	// Who has passed the fence may end.
	s := &script{t: t, daemons: both(func(c *conversation) {
		c.say(arrives)
		if f, ok := c.hear().(*wire.Fence); !ok || f.Number != 1 {
			t.Errorf("the fence is not released: %+v", f)
		}
		c.exit()
	})}
	if _, _, err := start(t, t.Context(), s, nil); err != nil {
		t.Error(err)
	}
}

// TestNames: what a rank publishes is found by ranks of all hosts; a daemon asks for its own ranks only.
func TestNames(t *testing.T) {
	published, found := make(chan bool), make(chan bool)
	s := &script{t: t, daemons: both(func(c *conversation) {
		asks := wire.Name{Asks: wire.NamePublish, Service: "s", Port: "p"}
		if c.job.HostID == 1 {
			asks = wire.Name{Rank: 3, Asks: wire.NameLookup, Service: "s"}
			<-published
			c.say(&wire.Name{Asks: wire.NameUnpublish, Service: "s"}) // is of another host: not listened to
		}
		c.say(&asks)
		if m, ok := c.hear().(*wire.Name); !ok || m.Rank != asks.Rank || !m.OK || m.Port != "p" && c.job.HostID == 1 {
			t.Errorf("%+v answers %+v", m, asks)
		}
		if c.job.HostID == 0 {
			close(published)
			<-found // the job may end soon after the first of its hosts
		} else {
			close(found)
		}
		c.exit()
	})}
	if _, _, err := start(t, t.Context(), s, nil); err != nil {
		t.Error(err)
	}
}

// TestImpossibleReports: what a daemon reports and cannot be, or stops reporting, ends the job in these words.
func TestImpossibleReports(t *testing.T) {
	exited := func(process int) wire.Message { return &wire.Exited{Process: process} }
	for want, says := range map[string]map[string][]wire.Message{ // by host; nil is one that falls silent
		"b: run: the daemon reports PMI barrier 5 after 0":                   {"b": {&wire.Fence{Number: 5}}},
		"b: join: the daemon reports a world of unknown hosts [0 7]":         {"b": {&wire.Committed{World: wire.World{Epoch: 1, Order: []int{0, 7}}}}},
		"b: run: the connection to the daemon ended":                         {"b": {nil}},
		"start a new world: rank 2 called init again, but ranks 0-1,3 ended": {"a": {exited(0), exited(1)}, "b": {exited(3), &wire.Rejoining{Process: 2, Epoch: 1}}},
	} {
		s := &script{t: t, daemons: saying(says)}
		if _, _, err := start(t, t.Context(), s, nil); err == nil || err.Error() != want {
			t.Errorf("verdict %v, want %s", err, want)
		}
	}
}

// TestSilentHosts: a host that has no daemon when the start is given up is named, but has not failed; the error also
// shows whether it answered.
func TestSilentHosts(t *testing.T) {
	for _, answers := range []bool{false, true} {
		t.Run(fmt.Sprint(answers), func(t *testing.T) {
			t.Parallel()
			s := &script{t: t, refuse: map[string]error{
				"a": &failure.HostError{Host: "a", Step: "resolve", Err: errors.New("unknown"), Code: 255},
			}, daemons: map[string]func(*conversation){"b": func(c *conversation) { c.end() }}, answers: answers}
			_, _, err := start(t, t.Context(), s, nil)
			var many *failure.HostErrors
			if !errors.As(err, &many) || len(many.Failed) != 1 || many.Error() != "a: resolve: unknown" {
				t.Fatalf("verdict %#v", err)
			}
			if !answers && (!slices.Equal(many.Silent, []string{"b"}) || many.Late != nil) || answers && (!slices.Equal(many.Late, []string{"b"}) || many.Silent != nil) {
				t.Fatalf("silent %q, late %q", many.Silent, many.Late)
			}
		})
	}
}

// TestSameMachine: a machine under two names is one host too many, unless two sshd's or a scheduler tell the hosts apart.
func TestSameMachine(t *testing.T) {
	for _, tc := range []struct {
		a, b     talk.Identity
		machines [2]string
		same     bool
	}{
		{machines: [2]string{"m", "m"}, same: true},
		{talk.Identity{HostKey: "k"}, talk.Identity{HostKey: "k"}, [2]string{"m", "m"}, true},
		{talk.Identity{HostKey: "k"}, talk.Identity{}, [2]string{"m", "m"}, true},
		{talk.Identity{HostKey: "k"}, talk.Identity{HostKey: "l"}, [2]string{"m", "m"}, false},
		{talk.Identity{Own: true}, talk.Identity{}, [2]string{"m", "m"}, false},
		{talk.Identity{HostKey: "k"}, talk.Identity{HostKey: "k"}, [2]string{"m", "n"}, false}, // from one image
		{machines: [2]string{"", ""}},
	} {
		s := &script{t: t, who: map[string]talk.Identity{"a": tc.a, "b": tc.b}, daemons: map[string]func(*conversation){}}
		for i, name := range []string{"a", "b"} {
			s.daemons[name] = func(c *conversation) {
				if c.machine = tc.machines[i]; c.begin() {
					c.exit()
				}
			}
		}
		_, _, err := start(t, t.Context(), s, nil)
		var he *failure.HostError
		if tc.same && (!errors.As(err, &he) || he.Step != "join" || !strings.Contains(he.Error(), "is the same machine as") || !strings.Contains(he.Hint, ":4; --strict=false")) ||
			!tc.same && err != nil {
			t.Errorf("%+v: verdict %v", tc, err)
		}
		_, notes, err := start(t, t.Context(), s, func(spec *launcher.Spec) { spec.IfAlone = wire.AloneWarns })
		if warned := strings.Contains(strings.Join(notes, "\n"), "is the same machine as"); err != nil || warned != tc.same {
			t.Errorf("%+v with --strict=false: %v, notes %q", tc, err, notes)
		}
	}
}

// TestOtherPython: hosts on which the program is another Python, or has another framework, do not train together unless the
// user wants that. What only one of them has, another path and a patch version are no difference.
func TestOtherPython(t *testing.T) {
	at := func(path, version, torch string) map[string]string {
		return map[string]string{"path": path, "Python": version, "torch": torch}
	}
	alike := at("/usr/bin/python3", "3.11", "2.1")
	for _, tc := range []struct {
		other     map[string]string
		want      []string // in the error, whichever host was ready first
		path, any bool
		two       bool // programs
	}{
		{other: at("/opt/bin/python3", "3.11", "2.1")},
		{other: at("/usr/bin/python3", "3.11", "")},
		{},
		{other: at("/opt/bin/python3", "3.9", "2.1"), want: []string{"/opt/bin/python3 has ", "Python 3", "3.9", "3.11", "/usr/bin/python3 has "}},
		{other: at("/usr/bin/python3", "3.11", "1.13"), want: []string{" has torch ", "1.13", "2.1", ", and on "}},
		{other: at("/usr/bin/python3", "3.11", "1.13"), path: true},
		{other: at("/usr/bin/python3", "3.11", "1.13"), any: true},
		{other: at("/usr/bin/python3", "3.11", "1.13"), two: true},
	} {
		s := &script{t: t, daemons: map[string]func(*conversation){}}
		for name, is := range map[string]map[string]string{"a": alike, "b": tc.other} {
			s.daemons[name] = func(c *conversation) {
				c.python = is
				if c.begin() {
					c.exit()
				}
			}
		}
		_, notes, err := start(t, t.Context(), s, func(spec *launcher.Spec) {
			if tc.path {
				spec.Programs[0].Env = []string{"PATH=/opt/bin"}
			}
			if tc.any {
				spec.IfAlone = wire.AloneWarns
			}
			if tc.two {
				spec.Programs = append(spec.Programs, spec.Programs[0])
				spec.Programs[0].Ranks = 1
			}
		})
		var he *failure.HostError
		if failed := errors.As(err, &he); failed != (tc.want != nil) || failed && (he.Step != "join" || he.ExitCode() != failure.ExitUsage) || !failed && err != nil {
			t.Errorf("%+v: verdict %v", tc, err)
		}
		for _, words := range tc.want {
			if !strings.Contains(fmt.Sprint(err), words) {
				t.Errorf("%v: not a word of %q", err, words)
			}
		}
		if warned := strings.Contains(strings.Join(notes, "\n"), "gorun: warning: "); warned != tc.any {
			t.Errorf("%+v: notes %q", tc, notes)
		}
	}
}

// TestStartTimeoutNamesTheStep: the error names how far host b came, and what to do.
func TestStartTimeoutNamesTheStep(t *testing.T) {
	hello := func(c *conversation) { c.say(&wire.Hello{Proto: wire.Proto, Version: "test"}); c.hear() }
	ready := func(c *conversation) {
		hello(c)
		c.say(&wire.Ready{Gossip: "10.0.0.1:1", Data: []string{"10.0.0.1:2"}, Port: 3, Host: topology.Host{CPUs: 2}})
		c.at, _ = c.hear().(*wire.Roster)
	}
	for _, tc := range []struct {
		step      string
		comes     func(*conversation)
		err, hint string
	}{
		{"start daemon", func(*conversation) {}, "the host answers, but no daemon runs there after 100ms",
			"is the host busy, or the path to it slow? Give it more time with --start-timeout"},
		{"connect", func(*conversation) {}, "no answer within 100ms",
			"is the host up, the address right and the port open in the firewall? Or give it more time with --start-timeout"},
		{"probe", hello, "the daemon is not ready after 100ms", "give it more time with --start-timeout"},
		{"join", ready, "the hosts could not form a world within 100ms", "hosts must reach each other directly: check firewalls between them, and by gorun doctor whether large packets are lost on the way"},
		{"start ranks", func(c *conversation) { ready(c); c.enter() }, "not all of its ranks run after 100ms",
			"is the program, or the working directory, on a file system that does not answer?"},
	} {
		t.Run(tc.step, func(t *testing.T) {
			s := &script{t: t, daemons: map[string]func(*conversation){
				"a": func(c *conversation) { c.begin(); c.end() },
				"b": func(c *conversation) { tc.comes(c); c.end() },
			}, answers: tc.step == "start daemon"}
			_, _, err := start(t, t.Context(), s, func(s *launcher.Spec) { s.StartTimeout = 100 * time.Millisecond })
			var he *failure.HostError
			if !errors.As(err, &he) || he.Host != "b" || he.Step != tc.step || he.Err.Error() != tc.err || he.Hint != tc.hint {
				t.Fatalf("verdict %#v", err)
			}
		})
	}
}

// TestStdinReachesRankZero: all of it, in order, and its end.
func TestStdinReachesRankZero(t *testing.T) {
	want := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB, more than the launcher holds
	var got strings.Builder
	s := &script{t: t, daemons: both(func(c *conversation) {
		for c.job.HostID == 0 {
			m, ok := c.hear().(*wire.Stdin)
			if !ok {
				break
			}
			got.Write(m.Data)
			c.say(&wire.Taken{})
			if m.EOF {
				break
			}
		}
		c.exit()
	})}
	_, _, err := start(t, t.Context(), s, func(s *launcher.Spec) { s.Stdin = strings.NewReader(want) })
	if err != nil || got.String() != want {
		t.Fatalf("%d of %d bytes arrived, error %v", got.Len(), len(want), err)
	}
}
