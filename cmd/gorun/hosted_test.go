package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gorun/launcher/jobs"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/wire"
)

// TestStrangeRequests: what only a broken program would ask of a daemon or a launcher is refused.
func TestStrangeRequests(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	_, noArguments := hosted{}.Start(t.Context(), &wire.Detach{})
	for want, err := range map[string]error{
		"start launcher: no arguments":         noArguments,
		"keep job ../x: not the name of a job": hosted{}.Save(authority.State{Job: "../x"}),
		"signal 9 is not passed on":            signalSelf(9),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	said, told := io.Pipe()
	hosted{log: slog.New(slog.NewTextHandler(told, nil))}.TakeOver(authority.State{Job: "x"}, authority.Snapshot{Value: []byte("{}")})
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || !strings.Contains(line, "nobody said what it runs") {
		t.Errorf("a launcher that begins with nothing: %q, %v", line, err)
	}
}

func TestChooseJob(t *testing.T) {
	at := func(host string, id int, state string, minute int) clusterRecord {
		return clusterRecord{host, jobs.Record{ID: id, State: state, Started: time.Unix(int64(60*minute), 0)}, "", nil}
	}
	all := []clusterRecord{at("a", 1, jobs.Ended, 1), at("b", 1, jobs.Running, 2), at("a", 2, jobs.Ended, 3)}
	for _, tc := range []struct {
		id      string
		running bool
		want    string
		wrong   string
	}{
		{id: "", want: "b/1"}, {id: "", running: true, want: "b/1"}, {id: "a/1", want: "a/1"}, {id: "2", want: "a/2"},
		{id: "1", wrong: "find job 1: a/1 and b/1 are called so"}, {id: "c/1", wrong: "find job c/1: no such job"}, {id: "3", wrong: "no such job"},
	} {
		r, err := chooseJob(all, tc.id, tc.running)
		if tc.wrong == "" && (err != nil || r.name() != tc.want) || tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
			t.Errorf("%q: %s, %v; want %q, error %q", tc.id, r.name(), err, tc.want, tc.wrong)
		}
	}
	if _, err := chooseJob(nil, "", false); err == nil || err.Error() != "the cluster has no detached jobs" {
		t.Errorf("no jobs: %v", err)
	}
	ended := all[:1]
	if r, err := chooseJob(ended, "", false); err != nil || r.name() != "a/1" {
		t.Errorf("the last: %s, %v", r.name(), err)
	}
	if _, err := chooseJob(ended, "", true); err == nil {
		t.Error("a job that has ended runs")
	}
	_, none := chooseJob(all, "c/1", false)
	for want, silent := range map[string][]string{
		"find job c/1: no such job, gorun ps --cluster host:1 lists them":                                                                               nil,
		"find job c/1: no such job; no answer from c, d, if the job's launcher was there, another host carries it on when its lease is over: ask again": {"c", "d"},
	} {
		if e, ok := errors.AsType[*usageError](unfound(none, silent, "host:1")); !ok || e.Error()+", "+e.hint != want {
			t.Errorf("%v, want %s", e, want)
		}
	}
	if h := readHosting(hosting{"h:1", "h", "/a key/file"}.String()); h != (hosting{"h:1", "h", "/a key/file"}) {
		t.Errorf("%+v", h)
	}
}

// TestAttachedForLong: who is attached to a job notices within some seconds that another launcher has taken over, as late as it may be, and
// asks all hosts rarely as long as that of the launcher says that it runs. What others say of the end of the same launcher is not believed.
func TestAttachedForLong(t *testing.T) {
	for name, c := range map[string]struct {
		lost, replaced time.Duration // when its host does not answer any more, and when another is there
		within         time.Duration
		most           int // times that all hosts are asked
	}{
		"without power":  {lost: time.Hour, replaced: time.Hour + 40*time.Second, within: lookAfter, most: 60 + 9},
		"standing still": {lost: 3 * time.Hour, replaced: time.Hour + 40*time.Second, within: lookAtAll, most: 61},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, asked := time.Now(), 0
				output, writer := io.Pipe()
				defer writer.Close()
				f := found{Record: jobs.Record{Term: 3}, output: func(context.Context, int, bool) (io.ReadCloser, error) { return output, nil }}
				f.Dial = func(context.Context) (net.Conn, error) {
					silent, conn := net.Pipe()
					go io.Copy(io.Discard, silent)
					return conn, nil
				}
				f.runs = func(context.Context) bool { return time.Since(began) < c.lost }
				f.next = func(context.Context) (found, bool) {
					asked++
					if time.Since(began) < c.replaced {
						return found{Record: jobs.Record{Term: 3, State: jobs.Ended, Code: 255}}, true // says a host that was cut off
					}
					return found{Record: jobs.Record{Term: 4}}, true
				}
				_, err := f.follow(t.Context(), io.Discard, 10)
				if after := time.Since(began) - c.replaced; !errors.Is(err, errMoved) || after < 0 || after > c.within {
					t.Errorf("%v, %v after another launcher came", err, after)
				}
				if asked > c.most {
					t.Errorf("all hosts were asked %d times, want %d at most", asked, c.most)
				}
			})
		})
	}
}

// TestDesertedRecord: what a host says of a job that it takes for lost goes when it hears of the job again, and nothing else does.
func TestDesertedRecord(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	store, err := jobStore()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []jobs.Record{{Authority: "ab", Term: 1, PID: 1, Machine: "here", Abandoned: "a launcher says so"}, {Authority: "cd", Term: 1, Machine: "here", Abandoned: "another job"},
		{Authority: "ab", Term: 2, Machine: "there", Abandoned: "a host with the same home"}} {
		r.Ended = time.Now()
		_, lock, err := store.Create(r)
		if err != nil {
			t.Fatal(err)
		}
		lock.Close()
	}
	h := hosted{hosting: hosting{name: "here"}}
	s := authority.State{Job: "ab", Term: 3, Holder: "a", Electors: []string{"a", "b", "here"}, Value: []byte(`{"name":"a/1"}`)}
	said := func() (all []string) {
		list, err := store.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			all = append(all, r.Abandoned)
		}
		slices.Sort(all)
		return all
	}
	before := said()
	if err := h.QuorumLost(s, 1); err != nil {
		t.Fatal(err)
	}
	if all := said(); len(all) != len(before)+1 || !slices.Contains(all, "of 3 hosts that decide who carries it on, 1 can") {
		t.Fatalf("records %q", all)
	}
	for range 2 {
		if err := h.QuorumBack(s); err != nil {
			t.Fatal(err)
		}
		if all := said(); !slices.Equal(all, before) {
			t.Errorf("records %q, want %q", all, before)
		}
	}
}
