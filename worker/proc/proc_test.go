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
	const rest = " 17 42 42 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 3 0 12345 1000 200 18446744073709551615"
	tests := []struct {
		name, line string
		want       process
		bad        bool
	}{
		{"plain", "42 (sleep) S" + rest, process{pid: 42, parent: 17, group: 42, session: 42, state: 'S', threads: 3, born: 12345}, false},
		{"name with parentheses", "42 (a) Z 1 (b)) Z" + rest, process{pid: 42, parent: 17, group: 42, session: 42, state: 'Z', threads: 3, born: 12345}, false},
		{"name with newline", "42 (a\nb) R" + rest + "\n", process{pid: 42, parent: 17, group: 42, session: 42, state: 'R', threads: 3, born: 12345}, false},
		{"empty", "", process{}, true},
		{"cut off", "42 (sleep) S 17 42", process{}, true},
		{"no name", "42 S 17 42 42", process{}, true},
		{"not a number", "42 (sleep) S x" + rest, process{}, true},
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
		p    process
		want bool
	}{
		{process{state: 'S', threads: 1}, false},
		{process{state: 'Z', threads: 1}, true},
		{process{state: 'Z', threads: 0}, true},
		{process{state: 'Z', threads: 4}, false}, // its first thread ended, others run
		{process{state: 'T', threads: 1}, false},
	} {
		if got := tt.p.dead(); got != tt.want {
			t.Errorf("%+v dead = %v, want %v", tt.p, got, tt.want)
		}
	}
}

func TestLineage(t *testing.T) {
	self := process{pid: 10, session: 5}
	table := []process{
		{pid: 1}, {pid: 5, parent: 1, session: 5}, self,
		{pid: 20, parent: 10, group: 20, session: 20}, // rank
		{pid: 21, parent: 20, group: 20, session: 20}, // its child
		{pid: 22, parent: 21, group: 22, session: 22}, // with a session of its own
		{pid: 30, parent: 10, group: 30, session: 30}, // another rank
		{pid: 40, parent: 10, group: 40, session: 20}, // orphan in the first rank's session
		{pid: 41, parent: 40, group: 41, session: 41}, // its child
		{pid: 50, parent: 10, group: 50, session: 50}, // detached, knows its rank
		{pid: 60, parent: 10, group: 60, session: 60}, // detached, knows nothing
		{pid: 61, parent: 60, group: 60, session: 60},
		{pid: 70, parent: 10, group: 10, session: 5}, // the daemon's own child
		{pid: 71, parent: 70, group: 71, session: 5},
		{pid: 80, parent: 1, group: 80, session: 80}, // none of ours
	}
	origin := func(pid int) (int, bool) { return 30, pid == 50 }
	got := lineage(table, self, map[int]bool{20: true, 30: true}, origin)
	want := map[int][]int{20: {20, 21, 22, 40, 41}, 30: {30, 50}, noRank: {60, 61}}
	for owner, pids := range want {
		var have []int
		for _, p := range got[owner] {
			have = append(have, p.pid)
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
		var table []process
		for i, p := range parents {
			table = append(table, process{pid: i, parent: int(p)})
		}
		return len(below(byParent(table), 0)) <= len(table)
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

func TestEnvironment(t *testing.T) {
	s := Spec{Process: 3, Env: []string{"PWD=/old", "GORUN_PROCESS=9", "A=1", "A=2"}, Dir: "/new"}
	env := s.environment("job")
	for name, want := range map[string]string{"PWD": "/new", "GORUN_PROCESS": "3", "GORUN_JOB": "job", "A": "2"} {
		if got, _ := variable(env, name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if len(s.Env) != 4 {
		t.Error("environment changed its input")
	}
	if _, ok := variable(env, "B"); ok {
		t.Error("B is set")
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
