package stall

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/rendezvous/wire"
)

// answers are those of two hosts about an allreduce that the second has not submitted as a whole.
func answers(age int64, over bool, missing ...int) Answers {
	return Answers{Hosts: []string{"a", "b", "c"}, By: map[int]*wire.Stalled{
		0: {Ops: []wire.Waiting{{Kind: "allreduce", Name: "x", AgeMS: age, Late: true, Over: over, Missing: []wire.Missing{
			{Host: "b", Ranks: []int{2, 3}}, {Host: "c", Ranks: []int{4}}}}}},
		1: {Ops: []wire.Waiting{{Kind: "allreduce", Name: "x", AgeMS: age / 2, Late: true, Missing: []wire.Missing{
			{Host: "b", Ranks: missing}}}}},
	}}
}

// TestJudge: users read what is new: an operation that waits, that it waits for others, that it is given up, that it is
// over.
func TestJudge(t *testing.T) {
	var r Reports
	now := time.Unix(1000, 0)
	const silent = "rank 4 on c (which does not answer)"
	for _, round := range []struct {
		answers Answers
		want    []string
		giveUp  bool
	}{
		{answers(2000, false, 3), []string{`allreduce "x" has waited 2.0 s for rank 3 on b and ` + silent}, false},
		{answers(4000, false, 3), nil, false},
		{answers(20000, false, 2, 3), []string{`allreduce "x" has waited 20 s for ranks 2-3 on b and ` + silent}, false},
		{answers(30000, true, 2, 3), []string{`allreduce "x" waited 30 s for ranks 2-3 on b and ` + silent +
			", which is the limit of HOROVOD_STALL_SHUTDOWN_TIME_SECONDS: giving up"}, true},
		{answers(31000, true, 2, 3), nil, false},
		{Answers{Hosts: []string{"a", "b", "c"}}, []string{`allreduce "x" is over after 31 s`}, false},
	} {
		lines, giveUp := r.Judge(now, round.answers)
		if !slices.Equal(lines, round.want) || (giveUp != nil) != round.giveUp {
			t.Errorf("got %q and %+v, want %q and %v", lines, giveUp, round.want, round.giveUp)
		}
		if giveUp != nil && (len(giveUp.Each) != 1 || !strings.HasPrefix(lines[0], giveUp.Text)) {
			t.Errorf("gives up %+v", giveUp)
		}
	}
}

// TestOf: what a rank does follows from what all hosts report, each of which knows best about its own ranks.
func TestOf(t *testing.T) {
	a := answers(3000, false, 3)
	for rank, want := range map[int]string{
		0: `waits in allreduce "x" for rank 3 on b and rank 4 on c (which does not answer), for 3s or longer`,
		2: `waits in allreduce "x" for rank 3 on b and rank 4 on c (which does not answer), for 3s or longer`,
		3: `has not called allreduce "x", which others wait for, for 3s or longer`,
	} {
		if got := a.Of(rank, rank/2); !slices.Equal(got, []string{want}) {
			t.Errorf("rank %d: got %q, want %q", rank, got, want)
		}
	}
}

// TestJoined: nobody waits for the ranks of a host that joined after the daemons were asked, whether they run or have ended.
func TestJoined(t *testing.T) {
	a := answers(3000, false, 3)
	joined := len(a.Hosts)
	if _, behind := a.Behind(4, joined); behind || a.Waits(4, joined) {
		t.Error("rank 4 of a host that joined is waited for")
	}
	if does := a.Of(4, joined); does != nil {
		t.Errorf("rank 4 of a host that joined: %q", does)
	}
}

// TestAgain: a host whose daemon was lost, and which has another one, is no silent one.
func TestAgain(t *testing.T) {
	a := answers(3000, false, 3)
	a.Hosts = append(a.Hosts, "c")
	a.By[3] = &wire.Stalled{}
	if got := a.missing(operation{name: "x"}); got != "rank 3 on b and rank 4 on c" {
		t.Errorf("got %q", got)
	}
}

// TestLasting: an operation counts as long as its oldest wait on a host; where only short waits make ranks seem to wait for each
// other, none does.
func TestLasting(t *testing.T) {
	a := Answers{Hosts: []string{"a", "b"}, By: map[int]*wire.Stalled{
		0: {Ops: []wire.Waiting{{Name: "x", AgeMS: 3000, Missing: []wire.Missing{{Host: "b", Ranks: []int{1}}}}}},
		1: {Ops: []wire.Waiting{{Name: "y", AgeMS: 900, Missing: []wire.Missing{{Host: "a", Ranks: []int{0}}}},
			{Name: "x", AgeMS: 800, Missing: []wire.Missing{{Host: "b", Ranks: []int{1}}}}}},
	}}
	for least, want := range map[time.Duration]string{0: "[0 1] [0 1] 3s", time.Second: "[1] [0] 3s", 4 * time.Second: "[] [] 0s"} {
		lasting := a.Lasting(least)
		var behind, waits []int
		for rank := range 2 {
			if _, ok := lasting.Behind(rank, rank); ok {
				behind = append(behind, rank)
			}
			if lasting.Waits(rank, rank) {
				waits = append(waits, rank)
			}
		}
		since, _ := lasting.Behind(1, 1)
		if got := fmt.Sprint(behind, waits, since); got != want {
			t.Errorf("for %v or longer: %s, want %s", least, got, want)
		}
	}
}

// TestCrossings: a line names ranks that wait for each other under one name in different operations.
func TestCrossings(t *testing.T) {
	waits := func(kind, name, host string, ranks ...int) *wire.Stalled {
		return &wire.Stalled{Ops: []wire.Waiting{{Kind: kind, Name: name, Group: 3, Late: true, Missing: []wire.Missing{{Host: host, Ranks: ranks}}}}}
	}
	several := waits("allgather", "allgather.y_1of2", "b", 2, 3)
	several.Ops = append(several.Ops, waits("allgather", "allgather.y_2of2", "b", 2, 3).Ops...)
	lines, _ := new(Reports).Judge(time.Unix(1000, 0), Answers{Hosts: []string{"a", "b"}, By: map[int]*wire.Stalled{
		0: several, 1: waits("broadcast", "broadcast.y", "a", 0, 1)}})
	const want = `the same name, different operations: ranks 0-1 on a in allgather of 2 tensors "y" of process set 3, ` +
		`ranks 2-3 on b in broadcast "y" of process set 3; call the same one on all of them`
	if !slices.Contains(lines, want) {
		t.Errorf("%q without %q", lines, want)
	}
}

// TestMany: operations are named, up to so many, and each is given up with what it waited for itself.
func TestMany(t *testing.T) {
	ops := []wire.Waiting{{Kind: "barrier", Name: "other", Late: true, Over: true, Missing: []wire.Missing{{Host: "b", Ranks: []int{2}}}}}
	for i := range 20 {
		ops = append(ops, wire.Waiting{Kind: "barrier", Name: fmt.Sprintf("x%02d", i), Late: true, Missing: []wire.Missing{{Host: "b", Ranks: []int{3}}}})
	}
	lines, giveUp := new(Reports).Judge(time.Unix(1000, 0), Answers{Hosts: []string{"a", "b"}, By: map[int]*wire.Stalled{0: {Ops: ops}, 1: {}}})
	if giveUp == nil || len(giveUp.Each) != 21 || len(lines) != 3 || !strings.Contains(lines[1], `, barrier "x15" and 4 more have waited up to 0.0 s for rank 3 on b`) {
		t.Fatalf("gives up %+v, lines %q", giveUp, lines)
	}
	for _, each := range giveUp.Each {
		if own := strings.Contains(each.Text, "another operation"); own == (each.Name == "other") {
			t.Errorf("gives up %+v", each)
		}
	}
}
