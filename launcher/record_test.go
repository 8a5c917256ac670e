package launcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/launcher/stall"
	"gorun/launcher/why"
	"gorun/rendezvous/wire"
)

// TestToRecord: each stall is recorded once, but not soon after another one was.
func TestToRecord(t *testing.T) {
	var s stalls
	now := time.Unix(1000, 0)
	waits := func(names ...string) stall.Answers {
		var ops []wire.Waiting
		for _, name := range names {
			ops = append(ops, wire.Waiting{Kind: "allreduce", Name: name, AgeMS: 61000, Late: true, Missing: []wire.Missing{{Host: "a", Ranks: []int{1}}}})
		}
		return stall.Answers{Hosts: []string{"a"}, By: map[int]*wire.Stalled{0: {Asked: true, Ops: ops}}}
	}
	for i, round := range []struct {
		after   time.Duration
		answers stall.Answers
		want    bool
	}{
		{0, waits(), false},
		{time.Second, waits("x"), true},
		{2 * recordPause, waits("x"), false},
		{time.Second, waits("x", "y"), false},
		{time.Second, waits(), false},
		{time.Second, waits("z"), true},
		{time.Second, waits(), false},
		{time.Second, waits("z"), false}, // soon after
		{recordPause, waits("z"), true},
		{recordPause, waits("z"), false},
	} {
		now = now.Add(round.after)
		s.reports.Judge(now, round.answers)
		if got := s.toRecord(now); got != round.want {
			t.Errorf("round %d: recorded %v, want %v", i, got, round.want)
		}
	}
}

// TestSkewedClocks: the late rank is the same one whatever the hosts' clocks show, and a clock that is far off is named. A
// host of the lab cannot have a wall clock of its own: a time namespace has other monotonic clocks alone.
func TestSkewedClocks(t *testing.T) {
	const asked, under, by = int64(1e15), int64(600_000), int64(8000)
	hosts := hostList{{id: 0, name: "a", up: true}, {id: 1, name: "b", up: true}}
	verdict := func(late int, skew ...int64) string {
		i := &inspection{flights: map[int]arrived{}}
		var all []why.Finding
		for host := range hosts {
			m := &wire.Flight{Now: asked + under/2 + skew[host]}
			for n := range int64(20) {
				at := asked - 1e6 + n*10_000 + skew[host]
				op := wire.FlightOp{Number: uint64(n), Name: "x", Kind: "allreduce", Epoch: 1, First: at, FirstRank: host, Last: at, LastRank: host,
					Others: at, LastHost: 1 - host, Began: at + by, Ended: at + by + 500, Outcome: "done"}
				if host == late {
					op.First, op.Last = at+by, at+by
				} else {
					op.Others = at + by
				}
				m.Ops = append(m.Ops, op)
			}
			i.flights[host] = arrived{m, aheadBy(m.Now, asked, asked+under)}
			all = append(all, why.Finding{Rank: host, Host: hosts[host].name, State: "runs", Ahead: i.flights[host].ahead})
		}
		ops, _, _ := i.record(hosts)
		for n, op := range ops {
			if shown := op.First - (asked - 1e6 + int64(n%20)*10_000); shown < -under || shown > under+by {
				t.Errorf("clocks off by %v: operation %d of %s is recorded %d µs late", skew, n, op.Host, shown)
			}
		}
		why.Learn(all, ops)
		text, _ := why.Explain(all)
		return text
	}
	for late := range hosts {
		want := verdict(late, 0, 0)
		if begin := fmt.Sprintf("the job waits again and again for rank %d on %s, the last one in 20 of 20 operations, by 8ms", late, hosts[late].name); !strings.HasPrefix(want, begin) {
			t.Fatalf("%q, want %q", want, begin)
		}
		for _, skew := range []int64{3000, 250_000, 1e6, 3600e6, 1e15} {
			for _, skews := range [][]int64{{skew, 0}, {0, skew}, {-skew, 0}, {0, -skew}, {skew, -skew}} {
				got, clocks, named := strings.Cut(verdict(late, skews...), "; the clock of ")
				if got != want || named != (skew > 2e6) {
					t.Errorf("clocks off by %v: %q, and clocks %q; want %q", skews, got, clocks, want)
				}
			}
		}
	}
}
