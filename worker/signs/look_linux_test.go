package signs

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/worker/proc"
)

// start runs a shell and returns its process once it has written a line.
func start(t *testing.T, script string) int {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// TestLook: a look tells a process that computes from one that sleeps, and finds a child that died and the file that a
// process waits for.
func TestLook(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	must.Do(t, exec.Command("mkfifo", pipe).Run())
	works := start(t, "echo; while :; do :; done")
	sleeps := start(t, "(sleep 0.1; exit 3) & echo; exec sleep 1000") // sleep does not wait for the child of the shell before it
	opens := start(t, "echo; exec cat "+pipe)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		look := Begin([]int{works, sleeps, opens, 1 << 30})
		time.Sleep(200 * time.Millisecond)
		seen := look.End()
		w, s, o := seen[works], seen[sleeps], seen[opens]
		if len(seen) != 3 || w == nil || s == nil || o == nil {
			t.Fatalf("%+v", seen)
		}
		ok := w.Main > 0 && w.CPU >= w.Main && w.Threads == 1 && s.CPU == 0 && len(s.Dead) == 1 &&
			strings.HasSuffix(s.Dead[0], "exit status 3") && strings.HasPrefix(o.Stuck, pipe+" (")
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("works %+v, sleeps %+v, opens %+v", w, s, o)
		}
	}
}

// TestMemory: a group is short of memory when the kernel has ended another of its processes, in both versions of control
// groups.
func TestMemory(t *testing.T) {
	for group, tt := range map[string]struct{ file, before, after string }{
		"0::/job": {"sys/fs/cgroup/job/memory.events", "low 0\nhigh 0\nmax 9\noom 4\noom_kill 2\noom_group_kill 0\n",
			"low 0\nhigh 0\nmax 9\noom 5\noom_kill 3\noom_group_kill 0\n"},
		"9:memory:/job\n0::/": {"sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
			"oom_kill_disable 0\nunder_oom 1\noom_kill 3\n"},
	} {
		root := t.TempDir()
		path := filepath.Join(root, tt.file)
		put := func(text string) {
			must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		}
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Do(t, os.MkdirAll(filepath.Join(root, "proc/7"), 0o700))
		must.Do(t, os.WriteFile(filepath.Join(root, "proc/7/cgroup"), []byte(group), 0o600))
		put(tt.before)
		m := memoryOf(root, 7)
		if m.killed != 2 || m.Short() {
			t.Errorf("%s: %+v, short: %v", group, m, m.Short())
		}
		put(strings.Replace(tt.before, "9", "10", 1)) // another limit
		if m.Short() {
			t.Errorf("%s: short although no process was ended", group)
		}
		put(tt.after)
		if !m.Short() {
			t.Errorf("%s: not short although a process was ended", group)
		}
	}
	if (Memory{}).Short() {
		t.Error("no group is short of memory")
	}
}

// TestRival: the command with most CPU time in all its processes is the rival, unless its processes are of the ranks.
func TestRival(t *testing.T) {
	before := map[int]proc.Process{10: {Command: "python3"}, 20: {Command: "make"}, 21: {Command: "sh", Ticks: 100}, 22: {Command: "sh"}}
	for _, c := range []struct {
		want string
		used time.Duration
		now  map[int]proc.Process
	}{
		{"make (process 20)", 300 * time.Millisecond, map[int]proc.Process{20: {Command: "make", Ticks: 30}, 21: {Command: "sh", Ticks: 110}, 22: {Command: "sh", Ticks: 10}}},
		{"sh (2 processes)", 400 * time.Millisecond, map[int]proc.Process{20: {Command: "make", Ticks: 30}, 21: {Command: "sh", Ticks: 120}, 22: {Command: "sh", Ticks: 20}}},
		{"sh (process 23)", 200 * time.Millisecond, map[int]proc.Process{10: {Command: "python3", Ticks: 90}, 11: {Command: "loader", Parent: 10, Ticks: 80}, 21: {Command: "sh", Ticks: 100}, 23: {Command: "sh", Ticks: 20}}},
		{"", 0, map[int]proc.Process{os.Getpid(): {Command: "gorund", Ticks: 50}, 21: {Command: "sh", Ticks: 100}}},
	} {
		l := &Look{ranks: map[int]*glance{10: {}}, machine: before}
		if name, used := l.rival(c.now); name != c.want || used != c.used {
			t.Errorf("%q used %v, want %q and %v", name, used, c.want, c.used)
		}
	}
}
