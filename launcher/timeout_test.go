package launcher

import (
	"strings"
	"testing"
	"time"

	"gorun/launcher/stall"
	"gorun/rendezvous/wire"
)

// TestRankState: what a rank does follows from what all daemons report, as each of them knows best about its own ranks.
// Host a has heard nothing of hosts b and c; on b, rank 2 has called the allreduce and rank 3 has not.
func TestRankState(t *testing.T) {
	all := []wire.Missing{{Host: "a", Ranks: []int{1}}, {Host: "b", Ranks: []int{2, 3}}, {Host: "c", Ranks: []int{6, 7}}}
	j := &job{state: state{hosts: []*host{{id: 0, name: "a", up: true}, {id: 1, name: "b", up: true}, {id: 2, name: "c", up: true}, {id: 3, name: "d"}},
		processes: processes{{started: true}, {started: true}, {started: true}, {started: true}, {},
			{started: true, exited: true}, {started: true}}},
		inspection: inspection{found: map[int]*wire.Inspected{
			0: {Ranks: []wire.RankState{{Process: 0, State: "sleeps"}}},
			1: {},
		}}}
	j.stalls.answers = stall.Answers{Hosts: []string{"a", "b", "c", "d"}, By: map[int]*wire.Stalled{
		0: {Asked: true, Ops: []wire.Waiting{{Kind: "barrier", AgeMS: 10}, {Kind: "allreduce", Name: "x", AgeMS: 61000, Missing: all}}},
		1: {Asked: true, Ops: []wire.Waiting{{Kind: "allreduce", Name: "x", AgeMS: 3000, Missing: []wire.Missing{{Host: "b", Ranks: []int{3}}}}}},
	}}
	missed := "rank 1 on a and rank 3 on b and ranks 6-7 on c (which does not answer)"
	for _, tt := range []struct {
		rank, host int
		want       string
	}{
		{0, 0, `sleeps; waits in allreduce "x" for ` + missed + `, for 1m1s or longer; in barrier`},
		{1, 0, `runs; has not called allreduce "x", which others wait for, for 1m1s or longer; in barrier`},
		{2, 1, `runs; waits in allreduce "x" for ` + missed + `, for 1m1s or longer`},
		{3, 1, `runs; has not called allreduce "x", which others wait for, for 1m1s or longer`},
		{4, 1, "has not started"},
		{5, 1, "has ended"},
		{6, 2, "its host does not answer"},
		{8, 3, "its host was not reached"},
	} {
		f := j.inspection.finding(tt.rank, j.processes.at(tt.rank), j.hosts[tt.host], j.stalls.answers, time.Minute)
		if got := strings.Join(append([]string{f.State}, f.Does...), "; "); got != tt.want {
			t.Errorf("rank %d: got %q, want %q", tt.rank, got, tt.want)
		}
		if behind := strings.Contains(tt.want, "has not called"); f.Behind != behind || behind && f.Waited != 61e6 {
			t.Errorf("rank %d: others wait for it: %v, for %d µs", tt.rank, f.Behind, f.Waited)
		}
		f = j.inspection.finding(tt.rank, j.processes.at(tt.rank), j.hosts[tt.host], j.stalls.answers, 2*time.Minute)
		if f.Behind || f.Waits {
			t.Errorf("rank %d: a wait of a minute is long where two are usual: %+v", tt.rank, f)
		}
	}
	delete(j.stalls.answers.By, 1) // b has not said who is missing there
	for _, missing := range all {
		missing.Ranks = append(missing.Ranks, 5) // on b, which has ended
		j.stalls.answers.By[0].Ops[1].Missing = []wire.Missing{missing}
		if f := j.inspection.finding(5, j.processes.at(5), j.hosts[1], j.stalls.answers, time.Hour); f.Behind != (missing.Host == "b") {
			t.Errorf("others wait for a rank that has ended, of %s: %+v", missing.Host, f)
		}
	}
	h, asked := j.hosts[2], time.Now() // which has not answered
	j.inspection.asked = asked
	for want, heard := range map[string]func(){
		"nobody reads what it writes":   func() { h.Heard.Has(asked.Add(-time.Second)) },
		"its host has not answered yet": func() { h.Heard.Has(asked.Add(time.Second)) },
		"its host does not answer":      func() { h.Heard.Reading(asked.Add(-time.Second)) },
	} {
		heard()
		if f := j.inspection.finding(6, j.processes.at(6), h, j.stalls.answers, time.Hour); f.State != want || f.Unread != strings.HasPrefix(want, "nobody") || f.Silent != strings.HasSuffix(want, " answer") {
			t.Errorf("got %+v, want %s", f, want)
		}
	}
}
