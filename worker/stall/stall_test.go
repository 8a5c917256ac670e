package stall

import (
	"testing"
	"time"

	"gorun/collective"
	"gorun/worker/session"
)

func TestLimits(t *testing.T) {
	for _, tc := range []struct {
		env  []string
		want limits
	}{
		{nil, limits{60 * time.Second, 0}},
		{[]string{"HOROVOD_STALL_CHECK_TIME_SECONDS=2"}, limits{2 * time.Second, 0}},
		{[]string{"HOROVOD_STALL_CHECK_TIME_SECONDS=0", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=9"}, limits{}},
		{[]string{"HOROVOD_STALL_CHECK_DISABLE=1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=9"}, limits{}},
		{[]string{"HOROVOD_STALL_CHECK_DISABLE=0"}, limits{60 * time.Second, 0}},
		{[]string{"HOROVOD_STALL_CHECK_TIME_SECONDS=2", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=9"}, limits{2 * time.Second, 9 * time.Second}},
		{[]string{"HOROVOD_STALL_CHECK_TIME_SECONDS=5", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=3"}, limits{5 * time.Second, 0}},
		{[]string{"HOROVOD_STALL_CHECK_TIME_SECONDS=soon"}, limits{60 * time.Second, 0}},
		{[]string{"HOROVOD_STALL_CHECK_TIME_SECONDS=1", "HOROVOD_STALL_CHECK_TIME_SECONDS=3"}, limits{3 * time.Second, 0}},
	} {
		if got := readLimits(tc.env); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.env, got, tc.want)
		}
	}
}

func TestReport(t *testing.T) {
	now := time.Unix(1000, 0)
	var open []collective.Stall
	for _, age := range []int{90, 60, 59, 1} {
		open = append(open, collective.Stall{Kind: collective.Allreduce, Name: "x", Since: now.Add(-time.Duration(age) * time.Second),
			Missing: []collective.Absent{{Host: "b", Ranks: []int{2}}}})
	}
	r := stalled(open, now, limits{time.Minute, 90 * time.Second})
	for i, want := range []struct{ late, over bool }{{true, true}, {true, false}, {false, false}, {false, false}} {
		if op := r.Ops[i]; op.Late != want.late || op.Over != want.over || op.Missing[0].Ranks[0] != 2 {
			t.Errorf("operation %d: %+v", i, op)
		}
	}
	if r := stalled(make([]collective.Stall, maxReported+5), now, limits{}); len(r.Ops) != maxReported || r.More != 5 {
		t.Errorf("%d operations and %d more", len(r.Ops), r.More)
	}
}

// Ranks that wait for each other in different operations of one name are late soon, unless warnings are off.
func TestReportOfCrossings(t *testing.T) {
	now := time.Unix(1000, 0)
	stall := func(name string, kind collective.Kind, age time.Duration, rank int) collective.Stall {
		return collective.Stall{Kind: kind, Name: name, Since: now.Add(-age), Missing: []collective.Absent{{Host: "b", Ranks: []int{rank}}}}
	}
	open := []collective.Stall{stall("allreduce.x", collective.Allreduce, 3*time.Second, 1), stall("allgather.x", collective.Allgather, time.Second, 0),
		stall("allreduce.y", collective.Allreduce, time.Second, 1), stall("allgather.y", collective.Allgather, 900*time.Millisecond, 0)}
	for warn, want := range map[time.Duration]int{time.Minute: 2, 0: 0} {
		r := stalled(open, now, limits{warn: warn})
		for i, op := range r.Ops {
			if op.Late != (i < want) || op.Over {
				t.Errorf("with a limit of %v, operation %d: %+v", warn, i, op)
			}
		}
	}
}

// What ranks start only to learn that another one leaves waits for it for ever, and is not late.
func TestWatchesAreNotLate(t *testing.T) {
	w := Watch{engine: fake{{Name: "gorun.watch.gpu.0"}, {Name: "allreduce.x"}}, sessions: fake{}}
	if got := w.pending(time.Now()); len(got) != 1 || got[0].Name != "allreduce.x" {
		t.Errorf("pending operations %v", got)
	}
}

// fake is an engine with open operations, and sessions whose ranks wait for nothing else.
type fake []collective.Stall

func (f fake) Pending(time.Time) []collective.Stall       { return f }
func (f fake) Held([]collective.Stall) []collective.Stall { return nil }
func (f fake) Waiting(time.Time) []collective.Stall       { return nil }
func (f fake) GiveUp(error, map[session.Subject]error)    {}
