//go:build linux

package faults

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

// fault is one that testdata/faults.py has, and what the first line of gorun why says of it.
type fault struct{ name, want string }

var faults = []fault{
	{"wrong order", `^rank 1 on host2 called barrier "head" before barrier "decoder", which came first until now`},
	{"missing call", `^rank 1 on host2 called barrier "decoder" before barrier "encoder", which came first until now: it left that call out`},
	{"fewer batches", `^rank 1 on host2 went on to barrier "end of epoch" after 12 rounds of barrier "encoder", .*: it has fewer batches`},
	{"mismatch", `exited with status 1: .*Error: allreduce "allreduce.gradients": rank 0 on host1 submitted float32\[4\], rank 1 on host2 submitted float32\[2\]`},
	{"exception", `rank 1 on host2 exited with status 1.*KeyError: 'no such layer'`},
	{"out of memory", `rank 1 on host2 was ended by the kernel: its control group is out of memory`},
	{"slow loader", `rank 1 on host2.* which waits for its data loader`},
	{"dead loader worker", `rank 1 on host2, which goes on without a process that it started and that died: process [0-9]+ .*, killed by signal 9`},
	{"stuck file system", `rank 1 on host2, which .*: /tmp/fault/data/batch-7 \(fuse`},
	{"full disk", `rank 1 on host2, which writes to a file system that is full, /tmp/fault`},
	{"memory from disk", `rank 1 on host2.* which waits for its memory to come from disk`},
	{"interpreter lock", `rank 1 on host2, which waits for Python's interpreter lock, .* at hog `},
	{"deadlock", `rank 1 on host2, which is in a deadlock: its main thread waits for a lock at deadlock .* another thread at hold_lock `},
	{"debugger", `rank 1 on host2, which is in a debugger`},
	{"stopped", `rank 1 on host2, which is paused by a signal`},
}

// shortages are faults that other tests on the same machine make worse.
var shortages = []fault{
	{"neighbour", `rank 1 on host2.* which gets too little CPU time: sh \(3 processes\)`},
	{"control group", `rank 1 on host2.* which is held back by its control group, which allows it 0.1 CPUs`},
	{"slow network", `under way between hosts: the slowest link is from host[12] to host[12]`},
	{"broken cable", `the path from host2 to host1 loses packets`},
}

// rare are left to make test-all: TestScripts/why and tests of launcher/why have much of them.
var rare = []string{"missing call", "dead loader worker", "memory from disk", "debugger", "stopped"}

// TestWhyNamesFaults plants faults, real ones as far as a host of the lab can have them, and asks gorun why, which is
// not told what is planted.
func TestWhyNamesFaults(t *testing.T) { plant(t, faults) }

// TestWhyNamesShortages does so for too little CPU time and bandwidth, which tests beside it would take too.
func TestWhyNamesShortages(t *testing.T) { plant(t, shortages) }

func plant(t *testing.T, faults []fault) {
	c := e2etest.NewCluster(t, 2)
	script, err := filepath.Abs("testdata/faults.py")
	if err != nil {
		t.Fatal(err)
	}
	shared := c.Shared("faults")
	t.Cleanup(func() { // control groups are no part of a lab
		for _, at := range []string{"", "cpu", "memory"} {
			groups, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", at, "gorun-"+filepath.Base(shared)+"-*"))
			for _, group := range groups {
				if err := os.Remove(group); err != nil {
					t.Error(err)
				}
			}
		}
	})
	e2etest.DependsOn(t, "contrib/e2e/faults/testdata")
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			if testing.Short() && slices.Contains(rare, f.name) {
				t.Skip("a part of make test-all")
			}
			began := time.Now()
			first, rest, _ := strings.Cut(ask(t, c, f.name, f.want, script, shared), "\n")
			if !regexp.MustCompile(f.want).MatchString(first) {
				t.Errorf("want %s in\n%s\n%s", f.want, first, rest)
			}
			t.Logf("after %.1f s: %s", time.Since(began).Seconds(), first)
		})
	}
	c.ExpectLeft(10*time.Second, "/tmp/fault/checkpoint") // the script's own
}

// ask runs a job with a fault until gorun why says what is wanted twice in a row, or for a minute, and returns what it
// said last. Of a job that has ended it asks what it has recorded.
func ask(t *testing.T, c *e2etest.Cluster, fault, want, script, shared string, flags ...string) (said string) {
	cmd, stdout, stderr := c.Command(slices.Concat([]string{"-np", "2", "-H", "host1,host2", "--grace", "0.2"}, flags,
		[]string{e2etest.Python, script, fault, "/tmp/fault", shared})...)
	watched := &e2etest.Watch{Buf: stdout}
	cmd.Stdout = watched
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); cmd.Wait() }()
	is, fit := regexp.MustCompile(want), 0
	for end := time.Now().Add(time.Minute); fit < 2 && time.Now().Before(end); {
		select {
		case <-ended:
			m := regexp.MustCompile(`gorun why (\S+) explains`).FindStringSubmatch(stderr.String())
			if m == nil {
				return "no recording\n" + stderr.String()
			}
			return c.GorunBeside("why", m[1]).Stdout + stderr.String()
		case <-time.After(200 * time.Millisecond):
		}
		if watched.Count("planted") == 0 {
			continue
		}
		said = c.GorunBeside("why").Stdout
		if first, _, _ := strings.Cut(said, "\n"); is.MatchString(first) {
			fit++
		} else {
			fit = 0
		}
	}
	if fit < 2 {
		said = "it has not said it twice in a row; last\n" + said
	}
	c.GorunBeside("stop", "--now")
	<-ended
	return said + stderr.String()
}

// TestWhyWithOtherClocks: the monotonic clock of host2 is ten hours ahead, the one of its rank is not, as in time
// namespaces of containers. Neither matters to who is late, for how long, and when.
func TestWhyWithOtherClocks(t *testing.T) {
	if testing.Short() {
		t.Skip("a part of make test-all")
	}
	c := e2etest.NewCluster(t, 2)
	shared := c.Shared("clocks")
	start := filepath.Join(shared, "start")
	const script = "#!/bin/sh\nhost=$1\nshift\n" +
		"[ $host = host1 ] || set -- unshare --time --monotonic 36000 --boottime 36000 --fork --kill-child \"$@\"\n" +
		"exec ssh $host \"$@\"\n"
	if err := os.WriteFile(start, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	faults, err := filepath.Abs("testdata/faults.py")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now().Add(-time.Second)
	const want = `rank 1 on host2.* which waits for its data loader`
	said := ask(t, c, "other clocks", want, faults, shared, "--launcher", start+" {host} {program}")
	if first, _, _ := strings.Cut(said, "\n"); !regexp.MustCompile(want).MatchString(first) || regexp.MustCompile(`\dh\d+m`).MatchString(said) {
		t.Errorf("want %s, and no wait of hours, in\n%s", want, said)
	}
	recorded := c.GorunBeside("why", "1").Stdout
	times := regexp.MustCompile(`called (?:it )?at (\d\d:\d\d:\d\d)`).FindAllStringSubmatch(recorded, -1)
	if len(times) == 0 {
		t.Errorf("no operations in\n%s", recorded)
	}
	for _, m := range times {
		at, err := time.ParseInLocation(time.DateTime, began.Format(time.DateOnly)+" "+m[1], time.Local)
		if began.Sub(at) > 12*time.Hour { // midnight came between
			at = at.AddDate(0, 0, 1)
		}
		if err != nil || at.Before(began.Truncate(time.Second)) || at.After(time.Now()) {
			t.Errorf("%s is no time of the job, which began at %s", m[1], began.Format(time.TimeOnly))
		}
	}
}

// TestRecording: a daemon that gets SIGUSR2 has the whole job recorded, and its ranks go on; when a rank fails later, the
// recording has that.
func TestRecording(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	dir := filepath.Join(c.Shared("recording"), "out")
	const program = `
import os, time
import numpy as np
import gorun.numpy as hvd
hvd.init()
for step in range(20):
    hvd.allreduce(np.ones(3), name="gradient")
print("trained", flush=True)
while not os.path.exists("/tmp/go"):
    time.sleep(0.02)
os.remove("/tmp/go")
if hvd.rank() == 1:
    raise ValueError("no more")
hvd.allreduce(np.ones(3), name="gradient")
`
	cmd, stdout, stderr := c.Command("-np", "2", "-H", "host1,host2", "--output-filename", dir, e2etest.Python, "-c", program)
	trained, watched := &e2etest.Watch{Buf: stdout}, &e2etest.Watch{Buf: stderr}
	cmd.Stdout, cmd.Stderr = trained, watched
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() }) // whatever comes
	file := filepath.Join(dir, "flight.jsonl")
	recorded := func() string {
		b, _ := os.ReadFile(file) // "" before there is one
		return string(b)
	}
	c.Await("end of the steps", func() bool { return trained.Count("trained") == 2 })
	if err := syscall.Kill(c.Pid(2, "gorun worker --daemon"), syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	c.Await("recording of twenty operations", func() bool {
		text := recorded()
		return strings.Contains(text, `"reason":"SIGUSR2 on host2"`) && strings.Count(text, `"outcome":"done"`) == 40
	})
	for host := range 2 {
		if _, err := c.Host(host+1).Exec(t.Context(), "touch", "/tmp/go"); err != nil {
			t.Fatal(err)
		}
	}
	err := cmd.Wait()
	says := c.GorunBeside("why", file).Stdout
	for _, want := range []string{`(?m)^rank 1 on host2 exited with status 1: ValueError: no more`, `because of the job failed`,
		`host1 recorded 21 operations`, `(?m)^ *allreduce "allreduce.gradient" of 24 bytes of float64: .*; (failed|waits for rank 1 on host2)$`} {
		if err == nil || !regexp.MustCompile(want).MatchString(says) {
			t.Errorf("%v: no %s in\n%s", err, want, says)
		}
	}
	if n := watched.Count("gorun: the last operations of the ranks are in " + file); n != 1 {
		t.Errorf("the place was named %d times:\n%s", n, stderr)
	}
}
