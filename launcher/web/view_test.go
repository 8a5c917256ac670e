package web

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/jobs"
	"gorun/launcher/why"
	"gorun/rendezvous/wire"
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

// TestThousandRanks: a view of 1,000 ranks on 125 hosts is a fraction of a megabyte, made in a fraction of the time
// between two of them, and names ranks together.
func TestThousandRanks(t *testing.T) {
	const hosts, each = 125, 8
	now := time.Unix(1700000000, 0)
	state := func(n int) (s jobs.State) {
		s.Record = jobs.Record{ID: 7, Program: "python3 train.py", Ranks: hosts * each, Started: now}
		for h := range hosts {
			name := fmt.Sprintf("node%03d.cluster.example", h)
			s.Record.Hosts = append(s.Record.Hosts, name)
			next := fmt.Sprintf("node%03d.cluster.example", (h+1)%hosts)
			s.Hosts = append(s.Hosts, jobs.HostStatus{Name: name, Next: next, Epoch: 1, Links: wire.Links{SentBytes: uint64(n) * 1e12}})
			for i := range each {
				s.Ranks = append(s.Ranks, jobs.RankStatus{Rank: h*each + i, Host: name, PID: 100000 + i,
					State: "waits for data from the network", RSS: 64 << 30, Split: &wire.Split{Elapsed: 86400e6, Steps: 1e6, Step: 480e3, Data: 8640e6, Others: 4320e6,
						Communication: 8640e6, Hidden: 10800e6, Operations: 1e8, Activity: "waits for an operation", For: 1e6}})
			}
		}
		return s
	}
	v := View{}.next(state(1), now)
	var text []byte
	best := time.Hour
	for n := range 5 {
		s := state(n + 2)
		began := time.Now()
		v = v.next(s, now)
		b, err := json.Marshal(v)
		must.Do(t, err)
		text, best = b, min(best, time.Since(began))
	}
	t.Logf("%d bytes in %v", len(text), best)
	if len(text) > hosts*each*512 {
		t.Errorf("the view has %d bytes", len(text))
	}
	if best > askInterval/4 {
		t.Errorf("the view takes %v", best)
	}
	if len(v.Ranks) != hosts*each || len(v.Hosts) != hosts || v.Hosts[124].Ranks != "992-999" {
		t.Errorf("%d ranks, %d hosts, the last with ranks %q", len(v.Ranks), len(v.Hosts), v.Hosts[len(v.Hosts)-1].Ranks)
	}
	end := state(7)
	for i := range end.Ranks {
		end.Ranks[i].State = fmt.Sprintf("ended with %d", i/500)
	}
	v = v.next(end, now)
	var got []string
	for _, e := range v.Events {
		got = append(got, e.Text)
	}
	want := []string{"epoch 1 begins, with 1000 ranks on 125 hosts", "ranks 0-999 started", "ranks 0-499 ended with 0",
		"ranks 500-999 ended with 1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestThousandAnswers: a stack that many ranks have in common is in the answer once.
func TestThousandAnswers(t *testing.T) {
	var all []why.Finding
	for i := range 1000 {
		line := "  File \"/home/ann/train.py\", line 12 in backward\n"
		if i == 999 {
			line = "  File \"/home/ann/train.py\", line 5 in batches\n"
		}
		stack := "Current thread 0x1 (most recent call first):\n" +
			strings.Repeat("  File \"/venv/torch/nn.py\", line 7 in forward\n", 40) + line
		all = append(all, why.Finding{Rank: i, Host: fmt.Sprint("node", i/8), PID: 100 + i, State: "is computing",
			Behind: i == 999, Waits: i < 999, Stack: stack})
	}
	a := answerOf(all)
	if !strings.HasPrefix(a.Verdict, "the job waits for rank 999 on node124, which is computing") {
		t.Error(a.Verdict)
	}
	if len(a.Stacks) != 2 || a.Stacks[0].Ranks != "0-998" || a.Stacks[1].Ranks != "999" {
		t.Errorf("%d stacks, of ranks %s", len(a.Stacks), a.Stacks[0].Ranks)
	}
	if b, err := json.Marshal(a); err != nil || len(b) > 1000*256 {
		t.Errorf("%d bytes, %v", len(b), err)
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
