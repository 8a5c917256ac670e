package web

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/launcher/jobs"
)

func TestChanges(t *testing.T) {
	now := time.Unix(1700000000, 0)
	state := func(epoch uint32, hosts ...string) (s jobs.State) {
		s.Record = jobs.Record{Ranks: len(hosts), Hosts: hosts}
		for i, name := range hosts {
			s.Hosts = append(s.Hosts, jobs.HostStatus{Name: name, Epoch: epoch})
			s.Ranks = append(s.Ranks, jobs.RankStatus{Rank: i, Host: name, PID: 10 + i, State: "runs"})
		}
		return s
	}
	with := func(s jobs.State, change func(*jobs.State)) jobs.State {
		change(&s)
		return s
	}
	silent := func(s *jobs.State) { s.Record.Silent = map[string]time.Time{"b": now} }
	for name, tt := range map[string]struct {
		before, after jobs.State
		want          string
	}{
		"first":   {jobs.State{}, state(1, "a", "b"), "epoch: epoch 1 begins, with 2 ranks on 2 hosts; started: ranks 0-1 started"},
		"nothing": {state(1, "a", "b"), state(1, "a", "b"), ""},
		"silent":  {state(1, "a", "b"), with(state(1, "a", "b"), silent), "silent: b falls silent"},
		"still":   {with(state(1, "a", "b"), silent), with(state(1, "a", "b"), silent), ""},
		"back":    {with(state(1, "a", "b"), silent), state(1, "a", "b"), "back: b is heard again"},
		"lost":    {with(state(1, "a", "b"), silent), state(2, "a"), "left: b is not in the job any more; epoch: epoch 2 begins, with 1 rank on 1 host"},
		"joined":  {state(1, "a"), state(2, "a", "c"), "joined: c has joined; epoch: epoch 2 begins, with 2 ranks on 2 hosts; started: rank 1 started"},
		"renewed": {state(1, "a"), with(state(1, "a"), func(s *jobs.State) { s.Hosts[0].Renewed = 2 }), "link: a has renewed connections: 2"},
		"apart": {state(1, "a", "b"), with(state(1, "a", "b"), func(s *jobs.State) {
			s.Record.Partitions = []jobs.Partition{{Host: "a", To: "b", Since: now}}
		}), "silent: a falls silent to b"},
		"ended": {state(1, "a", "b", "c"), with(state(1, "a", "b", "c"), func(s *jobs.State) {
			s.Ranks[0].State, s.Ranks[1].State, s.Ranks[2].State = "ended with 0", "ended with 1", "ended with 0"
		}), "ended: ranks 0,2 ended with 0; ended: rank 1 ended with 1"},
		"stopped": {state(1, "a"), with(state(1, "a"), func(s *jobs.State) {
			s.Record.Stopping, s.Record.StoppedBy = now, "me\x1b@here"
		}), "stopping: the job is stopped by me"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range changes(tt.before, tt.after, now) {
				got = append(got, e.Kind+": "+e.Text)
				if !e.At.Equal(now) {
					t.Errorf("%s at %v", e.Text, e.At)
				}
			}
			if text := strings.Join(got, "; "); text != tt.want && !(name == "stopped" && strings.HasPrefix(text, tt.want)) {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
		})
	}
}

// TestManyEvents: a job that changes for weeks does not fill the memory.
func TestManyEvents(t *testing.T) {
	v := View{}
	for i := range 3 * maxEvents {
		s := jobs.State{Record: jobs.Record{Ranks: 1}, Hosts: []jobs.HostStatus{{Name: "a", Epoch: uint32(i + 1)}}}
		v = v.next(s, time.Unix(int64(i), 0))
	}
	if len(v.Events) != maxEvents || !strings.HasPrefix(v.Events[maxEvents-1].Text, fmt.Sprintf("epoch %d begins", 3*maxEvents)) {
		t.Errorf("%d events, the last %q", len(v.Events), v.Events[len(v.Events)-1].Text)
	}
}
