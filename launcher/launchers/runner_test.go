package launchers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/jobs"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

// hostAt returns a host whose user's state is in a directory.
func hostAt(state, name string) Runner {
	return Runner{
		Origin: Origin{Name: name}, StateDir: func() (string, error) { return state, nil },
		Env: func() []string { return nil }, Log: slog.New(slog.DiscardHandler), Files: noFiles{},
	}
}

// noFiles has the files of requests that name none.
type noFiles struct{ Files }

func (noFiles) Fetch(context.Context, *wire.Detach, <-chan wire.Message, *wire.Writer) error {
	return nil
}

func (noFiles) Place(r *wire.Detach) (*wire.Detach, error) { return r, nil }

// TestStrangeRequests: what only a broken program would ask of a daemon is refused.
func TestStrangeRequests(t *testing.T) {
	h := hostAt(t.TempDir(), "here")
	_, noArguments := h.Start(t.Context(), &wire.Detach{})
	for want, err := range map[string]error{
		"start launcher: no arguments":         noArguments,
		"keep job ../x: not the name of a job": h.Save(authority.State{Job: "../x"}),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	read, written := io.Pipe()
	h.Log = slog.New(slog.NewTextHandler(written, nil))
	h.TakeOver(authority.State{Job: "x"}, authority.Snapshot{Value: []byte("{}")})
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil || !strings.Contains(line, "the snapshot does not say what the job runs") {
		t.Errorf("a launcher that begins with nothing: %q, %v", line, err)
	}
}

// TestLauncherOutOfReach: for a job whose launcher's host does not answer, gorun ps shows the answers of its electors,
// of the last one that heard it, until another launcher is there. Commands that are for a launcher do not take them for
// one.
func TestLauncherOutOfReach(t *testing.T) {
	state := t.TempDir()
	key := testKey(t)
	host := func(name string) Runner { return hostAt(state, name) }
	a, join := startDaemon(t, key, "a", host("a"))
	b, _ := startDaemon(t, key, "b", host("b"), join)
	client := standing.Client{Key: key, Version: testVersion}
	members := []wire.MemberState{{Host: "a", Addr: a}, {Host: "b", Addr: b}, {Host: "gone", Addr: "127.0.0.1:1"}}
	left := func(job string, code int, over bool) *wire.Keep {
		text, err := json.Marshal(handover{Name: "gone/7", Request: &wire.Detach{Program: "train.py"}, Shares: []wire.Share{{Host: "a", Slots: 2}, {Host: "gone", Slots: 1}}, Code: code})
		must.Do(t, err)
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
		all, silent := jobs.ListCluster(t.Context(), client, members)
		if !slices.Equal(silent, []string{"gone"}) {
			t.Errorf("%v do not answer", silent)
		}
		for _, r := range all {
			out = append(out, fmt.Sprintf("%s %s %d %v: %s", r.Label(), r.Program, r.Ranks, r.Hosts, r.StateText()))
		}
		return out
	}
	if got := shown(); len(got) != 1 || !slices.Contains(texts, got[0]) {
		t.Errorf("shown is %q, want one of %q", got, texts)
	}
	var missing *jobs.NotFoundError
	if _, err := jobs.FindInCluster(t.Context(), client, a, "gone/7", false); !errors.As(err, &missing) {
		t.Errorf("a job whose launcher does not answer is found: %v", err)
	}
	// A host takes over, of which all know who have a store in common.
	store, err := host("a").store()
	must.Do(t, err)
	_, lock, err := store.Create(jobs.Record{Name: "gone/7", Program: "train.py", Ranks: 3, Hosts: []string{"a", "b"}, Authority: "ab", Term: 3})
	must.Do(t, err)
	defer lock.Close()
	if got := shown(); len(got) != 1 || !strings.HasPrefix(got[0], "gone/7 train.py 3 [a b]: running, on ") {
		t.Errorf("shown is %q", got)
	}
}

// TestForwardedPort: a client that has no way to the daemon's own address, only a port that leads to it, finds the jobs of that host.
func TestForwardedPort(t *testing.T) {
	key := testKey(t)
	h := hostAt(t.TempDir(), "a")
	addr, _ := startDaemonAs(t, key, "a", "127.0.0.2", h) // where nobody listens
	store, err := h.store()
	must.Do(t, err)
	_, lock, err := store.Create(jobs.Record{Program: "train.py", Ranks: 1, Hosts: []string{"a"}})
	must.Do(t, err)
	defer lock.Close()
	if job, err := jobs.FindInCluster(t.Context(), standing.Client{Key: key, Version: testVersion}, addr, "", true); err != nil || job.Label != "a/1" {
		t.Errorf("found is %q: %v", job.Label, err)
	}
}

// TestNameIsNotGivenAgain: a host whose records are gone begins no job under the name of one that another host has taken
// over, or keeps.
func TestNameIsNotGivenAgain(t *testing.T) {
	key := testKey(t)
	a, b := hostAt(t.TempDir(), "a"), hostAt(t.TempDir(), "b")
	var join string
	a.Origin.Addr, join = startDaemon(t, key, "a", a)
	startDaemon(t, key, "b", b, join)
	a.Client = standing.Client{Key: key, Version: testVersion}
	store, err := b.store()
	must.Do(t, err)
	_, lock, err := store.Create(jobs.Record{Name: "a/1", Program: "p", Ended: time.Now()})
	must.Do(t, err)
	lock.Close()
	must.Soon(t, "two members", func() bool { return len(membersOf(t.Context(), a.Client, a.Origin.Addr)) == 2 })
	d, err := a.Start(t.Context(), &wire.Detach{Program: "p", Args: []string{"p"}, Dir: t.TempDir()})
	if err != nil || d.Job != 2 {
		t.Errorf("a job while another host has a/1: %+v, %v", d, err)
	}
	_, all, err := a.records()
	if err != nil || len(all) != 1 || syscall.Kill(all[0].PID, syscall.SIGKILL) != nil {
		t.Errorf("its launcher cannot be ended: %+v, %v", all, err)
	}
}

// TestDesertedRecord: a host's record of a job that it takes for lost goes when it hears of the job again, and nothing
// else does.
func TestDesertedRecord(t *testing.T) {
	h := hostAt(t.TempDir(), "here")
	store, err := h.store()
	must.Do(t, err)
	for _, r := range []jobs.Record{{Authority: "ab", Term: 1, PID: 1, Machine: "here", Abandoned: "a launcher says so"}, {Authority: "cd", Term: 1, Machine: "here", Abandoned: "another job"},
		{Authority: "ab", Term: 2, Machine: "there", Abandoned: "a host with the same home"}} {
		r.Ended = time.Now()
		_, lock, err := store.Create(r)
		must.Do(t, err)
		lock.Close()
	}
	s := authority.State{Job: "ab", Term: 3, Holder: "a", Electors: []string{"a", "b", "here"}, Value: []byte(`{"name":"a/1"}`)}
	said := func() (all []string) {
		list, err := store.List()
		must.Do(t, err)
		for _, r := range list {
			all = append(all, r.Abandoned)
		}
		slices.Sort(all)
		return all
	}
	before := said()
	must.Do(t, h.QuorumLost(s, 1))
	if all := said(); len(all) != len(before)+1 || !slices.Contains(all, "too few hosts are left to elect its launcher (1 of 3)") {
		t.Fatalf("records %q", all)
	}
	for range 2 {
		must.Do(t, h.QuorumBack(s))
		if all := said(); !slices.Equal(all, before) {
			t.Errorf("records %q, want %q", all, before)
		}
	}
}
