package proc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/contrib/must"
	"gorun/worker/proc"
)

// helperMode makes the test binary play a supervisor or a daemon instead of running tests.
const helperMode = "GORUN_PROC_TEST_HELPER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperMode); mode != "" {
		os.Exit(helper(mode))
	}
	goleak.VerifyTestMain(m)
}

// within is for things that take milliseconds; the machine may be slow.
const within = 20 * time.Second

// carrying returns the processes whose command line or environment holds mark.
func carrying(mark string) []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[1-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		env, _ := os.ReadFile(dir + "/environ")
		args, _ := os.ReadFile(dir + "/cmdline")
		if pid != os.Getpid() && (bytes.Contains(env, []byte(mark)) || bytes.Contains(args, []byte(mark))) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// zombies returns the dead children of this process.
func zombies() []string {
	var found []string
	stats, _ := filepath.Glob("/proc/[1-9]*/stat")
	for _, file := range stats {
		b, _ := os.ReadFile(file)
		if bytes.Contains(b, fmt.Appendf(nil, ") Z %d ", os.Getpid())) {
			found = append(found, string(b))
		}
	}
	return found
}

type sink struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

var serial int

// open returns a group whose job name is in no other process.
func open(t *testing.T, cfg proc.Config) (g *proc.Group, job string) {
	t.Helper()
	serial++
	cfg.Job = fmt.Sprintf("proctest-%d-%d", os.Getpid(), serial)
	g, err := proc.Open(cfg)
	must.Do(t, err)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if left := carrying(cfg.Job); len(left) > 0 {
			t.Errorf("processes %v outlived Close", left)
		}
		if z := zombies(); len(z) > 0 {
			t.Errorf("zombies after Close: %q", z)
		}
	})
	return g, cfg.Job
}

func shell(rank int, script string) proc.Spec {
	return proc.Spec{Process: rank, Argv: []string{"sh", "-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}}
}

func next(t *testing.T, g *proc.Group) proc.Exit {
	t.Helper()
	select {
	case e, ok := <-g.Exits():
		if !ok {
			t.Fatal("Exits was closed")
		}
		return e
	case <-time.After(within):
		t.Fatal("no rank ended")
		return proc.Exit{}
	}
}

// run starts a rank and returns how it ended, and what it wrote to its standard output.
func run(t *testing.T, g *proc.Group, spec proc.Spec) (proc.Exit, string) {
	t.Helper()
	var out sink
	g.Start(spec, &out, io.Discard)
	return next(t, g), out.String()
}

func TestExits(t *testing.T) {
	g, _ := open(t, proc.Config{})
	for _, tt := range []struct {
		script string
		code   int
		sig    syscall.Signal
	}{
		{"true", 0, 0},
		{"exit 3", 3, 0},
		{"exit 255", 255, 0},
		{"kill -KILL $$", 137, syscall.SIGKILL},
		{"kill -TERM $$", 143, syscall.SIGTERM},
		{"kill -SEGV $$", 139, syscall.SIGSEGV},
	} {
		if pid := g.Start(shell(7, tt.script), io.Discard, io.Discard); pid <= 0 {
			t.Errorf("%s: not started", tt.script)
		}
		if e := next(t, g); filepath.Base(e.File) != "sh" || e != (proc.Exit{Process: 7, Code: tt.code, Signal: tt.sig, File: e.File}) {
			t.Errorf("%s: %+v", tt.script, e)
		}
	}
}

func TestCannotStart(t *testing.T) {
	g, _ := open(t, proc.Config{})
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), mode))
	}
	write("plain", "text", 0o644)
	write("garbage", "\x00\x01\x02", 0o755)
	write("orphan", "#!/no/such/python3 -u\n", 0o755)
	write("windows", "#! /bin/sh\r\necho\r\n", 0o755)
	write("search", "#!/usr/bin/env sh\r\necho\r\n", 0o755)
	for link, target := range map[string]string{"python": "python3", "python3": "/no/such/python3.11", "loop": "loop"} {
		must.Do(t, os.Symlink(target, dir+"/"+link))
	}
	bin, conda := t.TempDir(), t.TempDir()
	must.Do(t, errors.Join(os.Symlink("/bin/sh", bin+"/python3"), os.Mkdir(conda+"/bin", 0o755), os.Symlink("/no/such/python3.11", conda+"/bin/python3")))
	path := []string{"PATH=" + dir + ":/usr/bin:/bin"}
	for _, tt := range []struct {
		name string
		spec proc.Spec
		code int
		text string
	}{
		{"not in PATH", proc.Spec{Argv: []string{"no-such-program"}, Env: path}, 127, "no-such-program: not found in PATH (" + dir},
		{"no such file", proc.Spec{Argv: []string{"/no/such/file"}, Env: path}, 127, "/no/such/file: no such file"},
		{"relative", proc.Spec{Argv: []string{"./none"}, Env: path, Dir: dir}, 127, "./none: no such file"},
		{"no permission", proc.Spec{Argv: []string{"./plain"}, Env: path, Dir: dir}, 126, "permission denied"},
		{"no permission in PATH", proc.Spec{Argv: []string{"plain"}, Env: path}, 126, "permission denied"},
		{"directory", proc.Spec{Argv: []string{dir}, Env: path}, 126, "is a directory"},
		{"not a program", proc.Spec{Argv: []string{"garbage"}, Env: path}, 126, "not a program of this machine"},
		{"no interpreter", proc.Spec{Argv: []string{"orphan"}, Env: path}, 127, "its interpreter /no/such/python3 is missing"},
		{"links to nothing", proc.Spec{Argv: []string{"./python"}, Env: path, Dir: dir}, 127, "./python: a link to /no/such/python3.11, which is not there"},
		{"no environment", proc.Spec{Argv: []string{"python3"}, Env: []string{"VIRTUAL_ENV=/no/venv", "PATH=/no/venv/bin:" + bin}}, 127, "python3: /no/venv is active where gorun runs, and not there on this host: " + bin + "/python3 would take its place"},
		{"environment without its Python", proc.Spec{Argv: []string{"python3"}, Env: []string{"CONDA_PREFIX=" + conda, "PATH=" + conda + "/bin:" + bin}}, 127, "python3: " + conda + " is active where"},
		{"link to itself", proc.Spec{Argv: []string{"./loop"}, Env: path, Dir: dir}, 1, "./loop: too many levels of symbolic links"},
		{"lines of Windows", proc.Spec{Argv: []string{"windows"}, Env: path}, 127, "its first line ends in a carriage return"},
		{"lines of Windows, by env", proc.Spec{Argv: []string{"search"}, Env: path}, 127, "search: its first line ends in a carriage return"},
		{"no directory", proc.Spec{Argv: []string{"true"}, Env: path, Dir: "/no/such/dir"}, 1, "working directory /no/such/dir: no such file"},
		{"directory is a file", proc.Spec{Argv: []string{"true"}, Env: path, Dir: dir + "/plain"}, 1, "not a directory"},
		{"relative directory", proc.Spec{Argv: []string{"true"}, Env: path, Dir: "tmp"}, 1, "not an absolute path"},
		{"nothing", proc.Spec{Env: path}, 127, "no program to run"},
		{"bad CPU", proc.Spec{Argv: []string{"true"}, Env: path, CPUs: []int{1 << 20}}, 1, "bind to CPU"},
		{"absent CPU", proc.Spec{Argv: []string{"true"}, Env: path, CPUs: []int{1023}}, 1, "none of them may be used here"},
		{"NUL in environment", proc.Spec{Argv: []string{"true"}, Env: append(path, "A=\x00")}, 1, "NUL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.spec.Process = 5
			if pid := g.Start(tt.spec, io.Discard, io.Discard); pid != 0 {
				t.Errorf("started as %d", pid)
			}
			e := next(t, g)
			if e.Process != 5 || e.Code != tt.code || e.Err == nil || !strings.Contains(e.Err.Error(), tt.text) {
				t.Errorf("%+v, want code %d and %q", e, tt.code, tt.text)
			}
		})
	}
}

// TestLookup: the program comes from the rank's PATH and directory, not from the daemon's.
func TestLookup(t *testing.T) {
	g, job := open(t, proc.Config{})
	dir := t.TempDir()
	must.Do(t, os.MkdirAll(dir+"/bin", 0o755))
	must.Do(t, os.WriteFile(dir+"/bin/greet", []byte("#!/bin/sh\necho $0 $PWD $GORUN_JOB $GORUN_PROCESS $HOME.\n"), 0o755))
	for _, tt := range []struct{ argv, path, found string }{
		{"greet", dir + "/bin", dir + "/bin/greet"},
		{"greet", "/usr/bin:bin", dir + "/bin/greet"},
		{"bin/greet", "/nowhere", dir + "/bin/greet"},
		{"./bin/greet", "/nowhere", dir + "/bin/greet"},
	} {
		e, out := run(t, g, proc.Spec{Process: 1, Argv: []string{tt.argv}, Dir: dir,
			Env: []string{"PWD=/old", "GORUN_JOB=old", "GORUN_PROCESS=9", "PATH=/wrong", "PATH=" + tt.path}})
		if e.Code != 0 || out != fmt.Sprintf("%s %s %s 1 .\n", tt.found, dir, job) {
			t.Errorf("%s in %s: %+v %q", tt.argv, tt.path, e, out)
		}
	}
	if e, out := run(t, g, proc.Spec{Argv: []string{"sh", "-c", "echo here"}}); e.Code != 0 || out != "here\n" {
		t.Errorf("without PATH: %+v %q", e, out)
	}
}

func TestStreams(t *testing.T) {
	g, _ := open(t, proc.Config{})
	var out, errs sink
	spec := shell(0, "cat; echo done >&2")
	spec.Stdin = true
	g.Start(spec, &out, &errs)
	in := g.Stdin(0)
	if in == nil {
		t.Fatal("no standard input")
	}
	text := strings.Repeat("0123456789", 100_000)
	_, err := io.WriteString(in, text)
	must.Do(t, err)
	in.Close()
	if e := next(t, g); e.Code != 0 || out.String() != text || errs.String() != "done\n" {
		t.Errorf("%+v, %d bytes, %q", e, len(out.String()), errs.String())
	}
	if g.Stdin(0) != nil {
		t.Error("a rank that ended has a standard input")
	}

	g.Start(shell(0, "cat; echo end"), &out, &errs)
	if g.Stdin(0) != nil {
		t.Error("standard input was not asked for")
	}
	if e := next(t, g); e.Code != 0 || !strings.HasSuffix(out.String(), "end\n") {
		t.Errorf("standard input is not empty: %+v", e)
	}
}

// TestStdinUnread: who writes to a rank that reads nothing is set free by its end.
func TestStdinUnread(t *testing.T) {
	g, _ := open(t, proc.Config{})
	spec := shell(0, "exec sleep 1000")
	spec.Stdin = true
	g.Start(spec, io.Discard, io.Discard)
	wrote := make(chan error)
	in := g.Stdin(0)
	go func() {
		_, err := in.Write(make([]byte, 1<<20))
		wrote <- err
	}()
	g.Signal(syscall.SIGKILL)
	if e := next(t, g); e.Signal != syscall.SIGKILL {
		t.Errorf("%+v", e)
	}
	if err := <-wrote; err == nil {
		t.Error("writing to a dead rank succeeded")
	}
}

// TestOutputBeforeExit: all output is there when the Exit is.
func TestOutputBeforeExit(t *testing.T) {
	g, _ := open(t, proc.Config{})
	if e, out := run(t, g, shell(0, "head -c 5000000 /dev/zero; exit 4")); e.Code != 4 || len(out) != 5_000_000 {
		t.Errorf("%+v with %d bytes", e, len(out))
	}
}

// TestClosedOutput: a rank that closes its pipes lives on.
func TestClosedOutput(t *testing.T) {
	g, _ := open(t, proc.Config{})
	spec := shell(0, "exec >&- 2>&-; read x; exit 6")
	spec.Stdin = true
	g.Start(spec, io.Discard, io.Discard)
	select {
	case e := <-g.Exits():
		t.Fatalf("ended: %+v", e)
	case <-time.After(100 * time.Millisecond):
	}
	g.Stdin(0).Write([]byte("go\n"))
	if e := next(t, g); e.Code != 6 {
		t.Errorf("%+v", e)
	}
}

func TestAffinity(t *testing.T) {
	g, _ := open(t, proc.Config{})
	allowed := func(cpus []int) string {
		spec := shell(0, "grep Cpus_allowed_list /proc/self/status")
		spec.CPUs = cpus
		_, out := run(t, g, spec)
		_, list, _ := strings.Cut(strings.TrimSpace(out), "\t")
		return list
	}
	all := allowed(nil)
	first, _, _ := strings.Cut(strings.ReplaceAll(all, ",", "-"), "-")
	n, err := strconv.Atoi(first)
	if err != nil {
		t.Fatalf("CPUs allowed: %q", all)
	}
	if got := allowed([]int{n}); got != first {
		t.Errorf("bound to %d, runs on %s", n, got)
	}
	if got := allowed(nil); got != all {
		t.Errorf("after a bound rank an unbound one runs on %s, not %s", got, all)
	}
}

// TestMemoryPolicy: a rank takes its memory from the nodes that it is given, and the next one from anywhere.
func TestMemoryPolicy(t *testing.T) {
	if _, err := os.Stat("/proc/self/numa_maps"); err != nil {
		t.Log("this kernel has no NUMA: there is nothing to prefer")
		return
	}
	g, _ := open(t, proc.Config{})
	policy := func(nodes []int) string {
		spec := shell(0, "head -n 1 /proc/self/numa_maps")
		spec.Nodes = nodes
		e, out := run(t, g, spec)
		fields := strings.Fields(out)
		if e.Code != 0 || len(fields) < 2 {
			t.Fatalf("%+v %q", e, out)
		}
		return fields[1]
	}
	before := policy(nil)
	if got := policy([]int{0}); !strings.HasPrefix(got, "prefer") || !strings.HasSuffix(got, ":0") {
		t.Errorf("memory of node 0 is preferred by policy %q", got)
	}
	if got := policy(nil); got != before {
		t.Errorf("afterwards the policy is %q, before it was %q", got, before)
	}
}

// detach starts `sleep N` four ways: in the rank's group, in a session of its own, daemonized with the
// rank's environment, and daemonized with none.
const detach = `
sleep %[1]d &
setsid sleep %[1]d &
(setsid sh -c 'sleep %[1]d & exit' &)
(env -i setsid sh -c 'PATH=/usr/bin:/bin; (sleep %[1]d &) ; exit' &)
`

var naps = 10_000_000

func nap() int { naps++; return naps*1000 + os.Getpid()%1000 }

// TestKilledRank: kill -9 of a rank takes along what it started, whatever that did to get away.
func TestKilledRank(t *testing.T) {
	g, _ := open(t, proc.Config{})
	g.Start(shell(1, "exec sleep 1000"), io.Discard, io.Discard) // keeps running
	n := nap()
	pid := g.Start(shell(0, fmt.Sprintf(detach, n)+"wait; sleep 1000"), io.Discard, io.Discard)
	mark := fmt.Sprintf("sleep\x00%d", n)
	must.Soon(t, "4 sleepers", func() bool { return len(carrying(mark)) == 4 })
	syscall.Kill(pid, syscall.SIGKILL)
	if e := next(t, g); e.Process != 0 || e.Signal != syscall.SIGKILL {
		t.Errorf("%+v", e)
	}
	// The one that shed its environment looks like the other rank's; it ends with the last rank.
	must.Soon(t, "at most 1 sleeper", func() bool { return len(carrying(mark)) <= 1 })
	g.Signal(syscall.SIGTERM)
	if e := next(t, g); e.Process != 1 || e.Signal != syscall.SIGTERM {
		t.Errorf("%+v", e)
	}
	must.Soon(t, "no sleeper", func() bool { return len(carrying(mark)) == 0 && len(zombies()) == 0 })
}

// TestGoodEndSweeps: a rank that ends well leaves nothing either, not even who ignores TERM, and what
// holds its pipe open does not delay its Exit for long.
func TestGoodEndSweeps(t *testing.T) {
	g, job := open(t, proc.Config{Linger: 50 * time.Millisecond})
	var out sink
	spec := shell(0, `setsid sh -c 'trap "" TERM; echo up; while :; do sleep 1000; done' & read x; echo bye`)
	spec.Stdin = true
	g.Start(spec, &out, io.Discard)
	must.Soon(t, "up", func() bool { return out.String() == "up\n" })
	g.Stdin(0).Close()
	if e := next(t, g); e.Code != 0 || out.String() != "up\nbye\n" {
		t.Errorf("%+v %q", e, out.String())
	}
	if left := carrying(job); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestStrangerHoldsPipe: the pipe is in the hands of a process that is not of the job. What was written
// arrives; the rest is not waited for.
func TestStrangerHoldsPipe(t *testing.T) {
	g, _ := open(t, proc.Config{Drain: 50 * time.Millisecond})
	var out sink
	pid := g.Start(shell(0, "echo before; exec sleep 1000"), &out, io.Discard)
	held, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", pid), os.O_WRONLY, 0)
	must.Do(t, err)
	defer held.Close()
	must.Soon(t, "first line", func() bool { return out.String() != "" })
	g.Signal(syscall.SIGKILL)
	if e := next(t, g); e.Signal != syscall.SIGKILL || out.String() != "before\n" {
		t.Errorf("%+v %q", e, out.String())
	}
}

// endsAs starts a rank with a script, and one that has detached something, has them ended, and holds how the first did
// and that nothing is left. It returns what they wrote.
func endsAs(t *testing.T, script string, sig syscall.Signal, code int, end func(*proc.Group) error) string {
	t.Helper()
	g, job := open(t, proc.Config{})
	var out sink
	g.Start(shell(0, script), &out, io.Discard)
	n := nap()
	g.Start(shell(1, fmt.Sprintf(detach, n)+"echo up; wait; sleep 1000"), &out, io.Discard)
	mark := fmt.Sprintf("sleep\x00%d", n)
	must.Soon(t, "ranks are up", func() bool { return strings.Count(out.String(), "up\n") == 2 && len(carrying(mark)) == 4 })
	must.Do(t, end(g))
	if left := append(carrying(job), carrying(mark)...); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	for range 2 {
		if e := next(t, g); e.Process == 0 && (e.Signal != sig || e.Code != code) {
			t.Errorf("%+v", e)
		}
	}
	return out.String()
}

func TestStop(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		grace        time.Duration
		sig          syscall.Signal
		code         int
	}{
		{"plain", "echo up; exec sleep 1000", time.Minute, syscall.SIGTERM, 143},
		{"cleans up", `trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.01; done`, time.Minute, 0, 9},
		{"ignores TERM", `trap "" TERM; echo up; while :; do sleep 1000; done`, 100 * time.Millisecond, syscall.SIGKILL, 137},
		{"is stopped", `echo up; kill -STOP $$; sleep 1000`, time.Minute, syscall.SIGTERM, 143},
		{"at once", `trap "" TERM; echo up; while :; do sleep 1000; done`, 0, syscall.SIGKILL, 137},
	} {
		t.Run(tt.name, func(t *testing.T) {
			endsAs(t, tt.script, tt.sig, tt.code, func(g *proc.Group) error { return g.Stop(context.Background(), tt.grace) })
		})
	}
}

// TestInterrupt: Ctrl-C reaches ranks as at a terminal, ranks that ignore it get TERM and KILL, and what they have
// detached ends when they have.
func TestInterrupt(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		grace        time.Duration
		sig          syscall.Signal
		code         int
		says         string
	}{
		{"plain", "echo up; exec sleep 1000", time.Minute, syscall.SIGINT, 130, ""},
		{"cleans up", `trap 'echo bye; exit 9' INT; echo up; while :; do sleep 0.01; done`, time.Minute, 0, 9, "bye\n"},
		{"a program of its own", `trap 'echo bye' INT; echo up; sh -c 'trap "echo inner" INT; sleep 1000'; exit 4`, time.Minute, 0, 4, "inner\nbye\n"},
		{"is stopped", `echo up; kill -STOP $$; sleep 1000`, time.Minute, syscall.SIGINT, 130, ""},
		{"ignores INT", `trap "" INT; trap 'echo term; exit 5' TERM; echo up; while :; do sleep 0.01; done`, 3 * time.Second, 0, 5, "term\n"},
		{"ignores both", `trap "" INT TERM; echo up; while :; do sleep 1000; done`, 300 * time.Millisecond, syscall.SIGKILL, 137, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := endsAs(t, tt.script, tt.sig, tt.code, func(g *proc.Group) error { return g.Interrupt(context.Background(), tt.grace) })
			if said := strings.ReplaceAll(out, "up\n", ""); said != tt.says {
				t.Errorf("the rank says %q, want %q", said, tt.says)
			}
		})
	}
}

// TestHurry: the end of the context replaces the grace, and so does a second Stop.
func TestHurry(t *testing.T) {
	for _, second := range []bool{false, true} {
		g, _ := open(t, proc.Config{})
		var out sink
		g.Start(shell(0, `trap 'echo termed' TERM; echo up; while :; do sleep 0.01; done`), &out, io.Discard)
		must.Soon(t, "up", func() bool { return out.String() == "up\n" })
		ctx, cancel := context.WithCancel(context.Background())
		stopped := make(chan error)
		go func() { stopped <- g.Stop(ctx, time.Hour) }()
		must.Soon(t, "termed", func() bool { return strings.Contains(out.String(), "termed") })
		if g.Start(shell(1, "true"), io.Discard, io.Discard) != 0 {
			t.Error("a rank started while the group stops")
		}
		if second {
			must.Do(t, g.Stop(ctx, 0))
		}
		cancel()
		must.Do(t, <-stopped)
		if e := next(t, g); !errors.Is(e.Err, proc.ErrStopping) {
			t.Errorf("%+v", e)
		}
		if e := next(t, g); e.Signal != syscall.SIGKILL {
			t.Errorf("%+v", e)
		}
	}
}

// TestSignal: USR1 reaches every rank; TSTP stops them although their sessions have no terminal.
func TestSignal(t *testing.T) {
	g, _ := open(t, proc.Config{})
	var out sink
	var pids []int
	for rank := range 3 {
		pids = append(pids, g.Start(shell(rank, `trap 'echo got; exit 0' USR1; sleep 1000 & echo up; wait`), &out, io.Discard))
	}
	must.Soon(t, "up", func() bool { return strings.Count(out.String(), "up") == 3 })
	state := func(pid int) string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return string(b[bytes.LastIndexByte(b, ')')+2])
	}
	g.Signal(syscall.SIGTSTP)
	must.Soon(t, "stopped", func() bool { return state(pids[0]) == "T" && state(pids[2]) == "T" })
	g.Signal(syscall.SIGCONT)
	g.Signal(syscall.SIGUSR1)
	for range 3 {
		if e := next(t, g); e.Code != 0 {
			t.Errorf("%+v", e)
		}
	}
	if n := strings.Count(out.String(), "got"); n != 3 {
		t.Errorf("%d of 3 got the signal", n)
	}
}

// TestReapsOrphans: what ranks daemonize while they run leaves no zombies, and other children of the
// daemon are not touched.
func TestReapsOrphans(t *testing.T) {
	g, _ := open(t, proc.Config{})
	var out sink
	own, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{})
	must.Do(t, err)
	t.Cleanup(func() { own.Kill(); own.Wait() })
	g.Start(shell(0, `for i in 1 2 3 4 5 6 7 8; do (setsid true &); done; echo up; read x`), &out, io.Discard)
	spec := shell(1, `read x; exit 3`)
	spec.Stdin = true
	g.Start(spec, io.Discard, io.Discard)
	must.Soon(t, "up", func() bool { return out.String() == "up\n" })
	must.Soon(t, "no zombies", func() bool { return len(zombies()) == 0 })
	g.Stop(context.Background(), 0)
	own.Kill()
	if st, err := own.Wait(); err != nil || st.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the daemon's own child: %v, %v", st, err)
	}
}

// TestUnreadExits: no one has to receive.
func TestUnreadExits(t *testing.T) {
	g, _ := open(t, proc.Config{})
	for rank := range 20 {
		g.Start(shell(rank, "exit 1"), io.Discard, io.Discard)
	}
	must.Do(t, g.Stop(context.Background(), time.Minute))
	seen := map[int]bool{}
	for range 20 {
		seen[next(t, g).Process] = true
	}
	if len(seen) != 20 {
		t.Errorf("%d of 20 exits", len(seen))
	}
}

// TestCycles starts and stops groups over and over, now and then with ranks that end by themselves.
func TestCycles(t *testing.T) {
	for i := range 100 {
		job := fmt.Sprintf("proccycle-%d-%d", os.Getpid(), i)
		g, err := proc.Open(proc.Config{Job: job})
		must.Do(t, err)
		for rank := range 3 {
			script := "exec sleep 1000"
			if (i+rank)%3 == 0 {
				script = "exit 1"
			}
			g.Start(shell(rank, script), io.Discard, io.Discard)
		}
		if i%2 == 0 {
			g.Stop(context.Background(), time.Minute)
		}
		must.Do(t, g.Close())
		if i%10 == 0 {
			if left := carrying(job); len(left) > 0 {
				t.Fatalf("cycle %d left %v", i, left)
			}
		}
		must.Do(t, g.Close()) // again does no harm
	}
}
