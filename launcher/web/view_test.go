package web

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/jobs"
	"gorun/launcher/why"
	"gorun/rendezvous/wire"
)

// TestThousandRanks: a view of 1,000 ranks on 125 hosts is a fraction of a megabyte, made in a fraction of the time
// between two of them.
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
	began := time.Now()
	text, err := json.Marshal(viewOf(state(2)))
	must.Do(t, err)
	if took := time.Since(began); took > time.Second/4 || len(text) > hosts*each*512 {
		t.Errorf("the view has %d bytes, made in %v", len(text), took)
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
