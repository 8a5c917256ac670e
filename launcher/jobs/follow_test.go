package jobs

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestChoose: a job has the name that its host gives it, or a number if only one host has that.
func TestChoose(t *testing.T) {
	at := func(host string, id int, state string, minute int) Entry {
		return Entry{Host: host, Record: Record{ID: id, State: state, Started: time.Unix(int64(60*minute), 0)}}
	}
	all := []Entry{at("a", 1, Ended, 1), at("b", 1, Running, 2), at("a", 2, Ended, 3)}
	for _, tc := range []struct {
		id      string
		running bool
		want    string
		wrong   string
	}{
		{id: "", want: "b/1"}, {id: "", running: true, want: "b/1"}, {id: "a/1", want: "a/1"}, {id: "2", want: "a/2"},
		{id: "1", wrong: "find job 1: a/1 and b/1 are called so"}, {id: "c/1", wrong: "find job c/1: no such job"}, {id: "3", wrong: "no such job"},
	} {
		r, err := choose(all, tc.id, tc.running)
		if tc.wrong == "" && (err != nil || r.Label() != tc.want) || tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
			t.Errorf("%q: %s, %v; want %q, error %q", tc.id, r.Label(), err, tc.want, tc.wrong)
		}
	}
	if _, err := choose(nil, "", false); err == nil || err.Error() != "the cluster has no detached jobs" {
		t.Errorf("no jobs: %v", err)
	}
	ended := all[:1]
	if r, err := choose(ended, "", false); err != nil || r.Label() != "a/1" {
		t.Errorf("the last: %s, %v", r.Label(), err)
	}
	if _, err := choose(ended, "", true); err == nil {
		t.Error("a job that has ended runs")
	}
	_, none := choose(all, "c/1", false)
	for want, silent := range map[string][]string{
		"find job c/1: no such job":                      nil,
		"find job c/1: no such job; no answer from c, d": {"c", "d"},
	} {
		if err := (&NotFoundError{none, silent}); err.Error() != want || !errors.Is(err, ErrNone) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestNamesakes: of jobs with one name the one that runs is meant, and else the latest. Users have to choose themselves
// between two that run.
func TestNamesakes(t *testing.T) {
	at := func(host string, id int, name, state string, minute int) Entry {
		return Entry{Host: host, Record: Record{ID: id, Name: name, State: state, Program: "p" + state, Started: time.Unix(int64(60*minute), 0).UTC()}}
	}
	ended, runs := at("b", 4, "a/1", Ended, 1), at("b", 4, "a/1", Running, 1)
	again, twice := at("a", 1, "", Running, 2), at("a", 1, "", Ended, 2)
	for name, tc := range map[string]struct {
		all         []Entry
		host, wrong string
	}{
		"the later runs":   {all: []Entry{ended, again}, host: "a"},
		"the earlier runs": {all: []Entry{runs, twice}, host: "b"},
		"none runs":        {all: []Entry{ended, twice}, host: "a"},
		"both run":         {all: []Entry{runs, again}, wrong: "find job a/1: jobs on b and a are called so"},
	} {
		e, err := choose(tc.all, "a/1", false)
		if tc.wrong != "" && (err == nil || err.Error() != tc.wrong) || tc.wrong == "" && (err != nil || e.Host != tc.host) {
			t.Errorf("%s: on %q, %v", name, e.Host, err)
		}
	}
	all := []Entry{ended, at("b", 7, "", Ended, 3), at("c", 9, "a/12", Unattended, 4), at("c", 2, "aa/30", Ended, 5)}
	if a, d := LastNumber(all, "a"), LastNumber(all, "d"); a != 12 || d != 0 {
		t.Errorf("the last numbers are %d and %d, want 12 and 0", a, d)
	}
}

// TestAttachedForLong: a user who is attached to a job notices within some seconds that another launcher has taken
// over, as late as it may be, and asks all hosts rarely as long as the launcher's host reports that it runs. Other
// hosts' reports of its end do not count.
func TestAttachedForLong(t *testing.T) {
	for name, c := range map[string]struct {
		lost, replaced time.Duration // when its host does not answer any more, and when another is there
		within         time.Duration
		most           int // times that all hosts are asked
	}{
		"without power":  {lost: time.Hour, replaced: time.Hour + 40*time.Second, within: askInterval, most: 60 + 9},
		"standing still": {lost: 3 * time.Hour, replaced: time.Hour + 40*time.Second, within: askAllInterval, most: 61},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, asked := time.Now(), 0
				output, writer := io.Pipe()
				defer writer.Close()
				f := Target{Record: Record{Term: 3}, Read: func(context.Context, int, bool) (io.ReadCloser, error) { return output, nil }}
				f.Dial = func(context.Context) (net.Conn, error) {
					silent, conn := net.Pipe()
					go io.Copy(io.Discard, silent)
					return conn, nil
				}
				f.runs = func(context.Context) bool { return time.Since(began) < c.lost }
				f.next = func(context.Context) (Target, bool) {
					asked++
					if time.Since(began) < c.replaced {
						return Target{Record: Record{Term: 3, State: Ended, Code: 255}}, true // says a host that was cut off
					}
					return Target{Record: Record{Term: 4}}, true
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
