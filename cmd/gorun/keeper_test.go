//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/launcher/jobs"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

// disk is what a host saves for jobs, unless it is full. No launcher begins there.
type disk struct{ full bool }

func (disk) Load() ([]authority.State, error) { return nil, nil }

func (d disk) Save(authority.State) error {
	if d.full {
		return errors.New("no space left on device")
	}
	return nil
}

func (disk) HasLauncher(authority.State) bool             { return true }
func (disk) TakeOver(authority.State, authority.Snapshot) {}
func (disk) QuorumLost(authority.State, int) error        { return nil }
func (disk) QuorumBack(authority.State) error             { return nil }

// standAlone starts the daemon of a host, to the end of the test, and returns where it and its gossip are.
func standAlone(t *testing.T, key standing.Key, name string, heirs standing.Failover, join ...string) (addr, gossip string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	launchers, _ := heirs.(standing.Launchers)
	go func() {
		ended <- standing.Serve(ctx, nil, standing.Config{Key: key, Name: name, Version: version, Slots: 1, Listener: l, Bind: "127.0.0.1",
			Address: "127.0.0.1", Join: join, Failover: heirs, Launchers: launchers, Command: func() *exec.Cmd { return exec.Command("cat") }, Log: slog.New(slog.DiscardHandler), Ready: func(gossip string) { ready <- gossip }})
	}()
	select {
	case gossip = <-ready:
	case err := <-ended:
		t.Fatal(name, err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(name, err)
		}
	})
	return l.Addr().String(), gossip
}

// TestWhoCannotSaveIsNoElector: an elector is lost, and of the other hosts the first two answer, but their disks are full: the third takes its
// place.
func TestWhoCannotSaveIsNoElector(t *testing.T) {
	key, err := standing.ParseKey([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	home, join := standAlone(t, key, "a", disk{})
	standAlone(t, key, "c", disk{}, join)
	standAlone(t, key, "d", disk{full: true}, join)
	standAlone(t, key, "e", disk{full: true}, join)
	standAlone(t, key, "f", disk{}, join)
	said := make(chan string, 10)
	k := &keeper{client: standing.Client{Key: key, Version: version}, self: "a", home: home, lease: 4 * time.Second, shares: func() []wire.Share { return nil },
		note: func(format string, args ...any) { said <- fmt.Sprintf(format, args...) }, stand: func(uint64) { t.Error("there is another launcher") }}
	k.hold("ab", authority.Snapshot{Electors: []string{"a", "b", "c"}})
	limit := time.Now().Add(30 * time.Second)
	for k.addrs = k.members(t.Context()); len(k.addrs) < 5; k.addrs = k.members(t.Context()) {
		if time.Now().After(limit) {
			t.Fatalf("the cluster has only %v", k.addrs)
		}
		time.Sleep(20 * time.Millisecond)
	}
	k.begin()
	k.Keep([]byte("null"), k.lease)
	select {
	case got := <-said:
		if want := "gorun: a, c, f decide from now on who carries the job on if this launcher is lost"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	case <-time.After(60 * time.Second):
		k.mu.Lock()
		t.Errorf("the electors are %v", k.holder.Electors())
		k.mu.Unlock()
	}
	k.close(0)
}

// noted is a disk that says what it saves.
type noted struct {
	disk
	saved chan authority.State
}

func (n noted) Save(s authority.State) error {
	n.saved <- s
	return nil
}

// TestNobodyKnowsBeforeTheWord: electors hear of a job when its launcher has said that it runs, and until then it decides alone. One that
// fails before that waits for nobody.
func TestNobodyKnowsBeforeTheWord(t *testing.T) {
	key, err := standing.ParseKey([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	host := noted{saved: make(chan authority.State, 10)}
	home, _ := standAlone(t, key, "a", host)
	keeperOf := func(job string) (k *keeper, d *detached, said *bufio.Reader) {
		k = &keeper{client: standing.Client{Key: key, Version: version}, self: "a", home: home, lease: 4 * time.Second, shares: func() []wire.Share { return nil },
			note: t.Logf, stand: func(uint64) { t.Error("there is another launcher") }, addrs: map[string]string{"a": home}}
		k.hold(job, authority.Snapshot{Electors: []string{"a"}})
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return k, &detached{keeper: k, ready: w}, bufio.NewReader(r)
	}
	safe := func(k *keeper, want uint64) {
		t.Helper()
		select {
		case got := <-k.Kept():
			if got != want {
				t.Errorf("%d is safe, want %d", got, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%d is not safe", want)
		}
	}
	k, d, said := keeperOf("ab")
	for n := range uint64(2) {
		if got := k.Keep([]byte("1"), k.lease); got != n+1 {
			t.Errorf("number %d, want %d", got, n+1)
		}
		safe(k, n+1)
	}
	if n := len(host.saved); n > 0 {
		t.Fatalf("an elector knows of the job before it runs: %+v", <-host.saved)
	}
	d.say("runs")
	if text, err := said.ReadString('\n'); text != "runs\n" {
		t.Errorf("it said %q, %v", text, err)
	}
	if s := <-host.saved; s.Seq != 2 || !strings.Contains(string(s.Value), `"launcher":1`) {
		t.Errorf("the elector got value %d: %s", s.Seq, s.Value)
	}
	d.say("says that again")
	k.Keep([]byte("2"), k.lease)
	safe(k, 3)
	k.close(7)
	<-host.saved
	if s := <-host.saved; !s.Over || !strings.Contains(string(s.Value), `"code":7`) {
		t.Errorf("the elector got %+v", s)
	}

	k, _, _ = keeperOf("ef") // of a job that has waited for slots, and has nothing to leave yet
	k.begin()
	time.Sleep(k.lease / 4)
	if len(host.saved) > 0 {
		t.Errorf("the elector got %+v", <-host.saved)
	}
	k.close(0)
	if s := <-host.saved; s.Seq != 1 || !s.Over {
		t.Errorf("the elector got %+v", s)
	}

	k, _, _ = keeperOf("cd")
	k.Keep([]byte("1"), k.lease)
	began := time.Now()
	if k.close(1); time.Since(began) > lastWord/2 || len(host.saved) > 0 {
		t.Errorf("a job that has failed to start says so to its electors, for %v", time.Since(began))
	}
}

// TestBereft: of a job whose launcher's host does not answer, gorun ps says what those say who may carry it on, the last of them that heard
// it, until another launcher is there. Commands that are for a launcher do not take them for one.
func TestBereft(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	key, err := standing.ParseKey([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	host := func(name string) hosted { return hosted{hosting{name: name}, slog.New(slog.DiscardHandler)} }
	a, join := standAlone(t, key, "a", host("a"))
	b, _ := standAlone(t, key, "b", host("b"), join)
	client := standing.Client{Key: key, Version: version}
	members := []wire.MemberState{{Host: "a", Addr: a}, {Host: "b", Addr: b}, {Host: "gone", Addr: "127.0.0.1:1"}}
	left := func(job string, code int, over bool) *wire.Keep {
		text, err := json.Marshal(bequest{Name: "gone/7", Request: &wire.Detach{Program: "train.py"}, Shares: []wire.Share{{Host: "a", Slots: 2}, {Host: "gone", Slots: 1}}, Code: code})
		if err != nil {
			t.Fatal(err)
		}
		return &wire.Keep{Job: job, Term: 2, Seq: 1, Holder: "gone", Electors: []string{"gone", "a", "b"}, LeaseMS: 60000, Over: over, Value: text}
	}
	var texts []string
	for _, to := range []struct {
		addr string
		keep *wire.Keep
	}{{a, left("ab", 0, false)}, {b, left("ab", 0, false)}, {a, left("cd", 0, true)}} {
		time.Sleep(1100 * time.Millisecond) // so that the seconds differ
		before := time.Now().Truncate(time.Second)
		if _, err := client.Keep(t.Context(), to.addr, to.keep); err != nil {
			t.Fatal(err)
		}
		for at := before; to.addr == b && at.Before(time.Now()); at = at.Add(time.Second) {
			texts = append(texts, "gone/7 train.py 3 [a gone]: no answer from its launcher on gone, heard last at "+at.Local().Format(time.TimeOnly)+"; another host carries it on a --lease after that")
		}
	}
	shown := func() (out []string) {
		t.Helper()
		all, silent := allRecords(t.Context(), client, members)
		if !slices.Equal(silent, []string{"gone"}) {
			t.Errorf("%v do not answer", silent)
		}
		for _, r := range latest(all) {
			out = append(out, fmt.Sprintf("%s %s %d %v: %s", r.name(), r.Program, r.Ranks, r.Hosts, r.stand()))
		}
		return out
	}
	if got := shown(); len(got) != 1 || !slices.Contains(texts, got[0]) {
		t.Errorf("shown is %q, want one of %q", got, texts)
	}
	if all, _ := detachedJobs(t.Context(), client, members); len(all) > 0 {
		t.Errorf("%+v can be reached", all)
	}
	// A host takes over, of which all know who have a store in common.
	store, err := jobStore()
	if err != nil {
		t.Fatal(err)
	}
	_, lock, err := store.Create(jobs.Record{Name: "gone/7", Program: "train.py", Ranks: 3, Hosts: []string{"a", "b"}, Authority: "ab", Term: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if got := shown(); len(got) != 1 || !strings.HasPrefix(got[0], "gone/7 train.py 3 [a b]: running, on ") {
		t.Errorf("shown is %q", got)
	}
}

// TestFirstOf: the first that answer, and no more than are wanted are asked at once.
func TestFirstOf(t *testing.T) {
	for _, c := range []struct{ names, answer, want, asked string }{
		{"abcdef", "abcdef", "ab", "ab"},
		{"abcdef", "bcef", "bc", "abc"},
		{"abcdef", "f", "f", "abcdef"},
		{"a", "a", "a", "a"},
		{"", "", "", ""},
	} {
		asked := make(chan string, len(c.names))
		got := firstOf(2, strings.Split(c.names, ""), func(name string) bool {
			asked <- name
			return strings.Contains(c.answer, name)
		})
		close(asked)
		var all []string
		for name := range asked {
			all = append(all, name)
		}
		slices.Sort(all)
		if strings.Join(got, "") != c.want || strings.Join(all, "") != c.asked {
			t.Errorf("of %q, where %q answer: %v, and %v were asked", c.names, c.answer, got, all)
		}
	}
}
