package proc

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/quick"
	"time"
)

func TestParseStat(t *testing.T) {
	const rest = " 17 42 42 0 -1 4194560 100 200 33 44 150 50 20 5 20 0 3 0 12345 1000 7 18446744073709551615 1 2 3 4 5 0 0 " +
		"16781312 0 0 0 0 17 1 0 0 0 0 0 1 2 3 4 5 6 7 9\n"
	want := func(command string, state byte) Process {
		return Process{PID: 42, Parent: 17, Group: 42, Session: 42, State: state, Threads: 3, Born: 12345, Command: command,
			Faults: 33, Ticks: 200, ChildTicks: 25, Pages: 7, Exit: 9}
	}
	tests := []struct {
		name, line string
		want       Process
		bad        bool
	}{
		{"plain", "42 (sleep) S" + rest, want("sleep", 'S'), false},
		{"name with parentheses", "42 (a) Z 1 (b)) Z" + rest, want("a) Z 1 (b)", 'Z'), false},
		{"name with newline", "42 (a\nb) R" + rest, want("a\nb", 'R'), false},
		{"empty", "", Process{}, true},
		{"cut off", "42 (sleep) S 17 42", Process{}, true},
		{"no name", "42 S 17 42 42", Process{}, true},
		{"not a number", "42 (sleep) S x" + rest, Process{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat([]byte(tt.line))
			if got != tt.want || (err != nil) != tt.bad {
				t.Errorf("parseStat(%q) = %+v, %v, want %+v", tt.line, got, err, tt.want)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (sleep) S 17 42 42 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 3 0 12345"))
	f.Add([]byte("1 () ) (x"))
	f.Fuzz(func(t *testing.T, b []byte) { parseStat(b) })
}

func TestDead(t *testing.T) {
	for _, tt := range []struct {
		p    Process
		want bool
	}{
		{Process{State: 'S', Threads: 1}, false},
		{Process{State: 'Z', Threads: 1}, true},
		{Process{State: 'Z', Threads: 0}, true},
		{Process{State: 'Z', Threads: 4}, false}, // its first thread ended, others run
		{Process{State: 'T', Threads: 1}, false},
	} {
		if got := tt.p.dead(); got != tt.want {
			t.Errorf("%+v dead = %v, want %v", tt.p, got, tt.want)
		}
	}
}

func TestLineage(t *testing.T) {
	self := Process{PID: 10, Session: 5}
	table := []Process{
		{PID: 1}, {PID: 5, Parent: 1, Session: 5}, self,
		{PID: 20, Parent: 10, Group: 20, Session: 20}, // rank
		{PID: 21, Parent: 20, Group: 20, Session: 20}, // its child
		{PID: 22, Parent: 21, Group: 22, Session: 22}, // with a session of its own
		{PID: 30, Parent: 10, Group: 30, Session: 30}, // another rank
		{PID: 40, Parent: 10, Group: 40, Session: 20}, // orphan in the first rank's session
		{PID: 41, Parent: 40, Group: 41, Session: 41}, // its child
		{PID: 50, Parent: 10, Group: 50, Session: 50}, // detached, knows its rank
		{PID: 60, Parent: 10, Group: 60, Session: 60}, // detached, knows nothing
		{PID: 61, Parent: 60, Group: 60, Session: 60},
		{PID: 70, Parent: 10, Group: 10, Session: 5}, // the daemon's own child
		{PID: 71, Parent: 70, Group: 71, Session: 5},
		{PID: 80, Parent: 1, Group: 80, Session: 80}, // none of ours
	}
	origin := func(pid int) (int, bool) { return 30, pid == 50 }
	got := lineage(table, self, map[int]bool{20: true, 30: true}, origin)
	want := map[int][]int{20: {20, 21, 22, 40, 41}, 30: {30, 50}, noRank: {60, 61}}
	for owner, pids := range want {
		var have []int
		for _, p := range got[owner] {
			have = append(have, p.PID)
		}
		slices.Sort(have)
		if !slices.Equal(have, pids) {
			t.Errorf("processes of %d: %v, want %v", owner, have, pids)
		}
	}
	if len(got) != len(want) {
		t.Errorf("owners: %v", got)
	}
}

// TestBelowEnds: a table that was read while numbers were used anew may lead round in a circle.
func TestBelowEnds(t *testing.T) {
	err := quick.Check(func(parents []uint8) bool {
		var table []Process
		for i, p := range parents {
			table = append(table, Process{PID: i, Parent: int(p)})
		}
		return len(below(byParent(table), 0)) <= len(table)
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

func TestStatus(t *testing.T) {
	if e := status(1, syscall.WaitStatus(3<<8)); e != (Exit{Process: 1, Code: 3}) {
		t.Errorf("exit 3: %+v", e)
	}
	if e := status(1, syscall.WaitStatus(9)); e != (Exit{Process: 1, Code: 137, Signal: syscall.SIGKILL}) {
		t.Errorf("KILL: %+v", e)
	}
	if s := (&StuckError{PIDs: []int{4, 5}}).Error(); !strings.HasPrefix(s, "processes 4 5 cannot") {
		t.Error(s)
	}
}

// TestScanClock replays an hour in which a rank ends badly and a zombie a millisecond has to be reaped.
func TestScanClock(t *testing.T) {
	t0 := time.Unix(1000, 0)
	var c scanClock
	if c.wait(t0) < time.Minute || c.due(t0) {
		t.Error("an idle clock has something to do")
	}
	c.now(t0)
	if !c.due(t0) {
		t.Error("not due at once")
	}
	var waits []time.Duration
	at := t0
	for range 7 {
		c.scanned(at, at, true)
		waits = append(waits, c.wait(at))
		at = at.Add(c.wait(at))
	}
	ms := time.Millisecond
	if want := []time.Duration{2 * ms, 4 * ms, 8 * ms, 16 * ms, 32 * ms, 50 * ms, 50 * ms}; !slices.Equal(waits, want) {
		t.Errorf("backs off %v, want %v", waits, want)
	}
	c.scanned(at, at, false)

	const cost = 10 * time.Millisecond
	scans := 0
	for end := at.Add(time.Minute); at.Before(end); at = at.Add(time.Millisecond) {
		c.lazy(at)
		if c.due(at) {
			scans++
			c.scanned(at, at.Add(cost), false)
		}
	}
	if busy := time.Duration(scans) * cost; busy > time.Minute/9 {
		t.Errorf("reaping zombies took %v of a minute", busy)
	}
	if scans < 100 {
		t.Errorf("only %d scans in a minute", scans)
	}
}
