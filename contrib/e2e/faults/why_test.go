package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// fault is one that testdata/faults.py has, and what the first line of gorun why says of it. WHO is the rank that has it.
type fault struct{ name, want string }

var faults = []fault{
	{"wrong order", `^WHO called barrier "head" before barrier "decoder", which came first until now`},
	{"missing call", `^WHO called barrier "decoder" before barrier "encoder", which came first until now: it left that call out`},
	{"fewer batches", `^rank.* wait for each other: .* or numbers: .*is in barrier "end of epoch"`}, // a new one: the other may have more
	{"fewer batches later", `^WHO went on to barrier "epoch" after 12 rounds of barrier "encoder", .*: it has fewer batches`},
	{"no validation", `^WHO calls barrier "encoder" once more, when others went on to barrier "epoch": .* or left that call out`},
	{"mismatch", `exited with status 1: allreduce "allreduce.gradients": rank 0 on host1 submitted float32\[[24]\], rank 1 on host[12] submitted float32\[[24]\]`},
	{"exception", `WHO exited with status 1.*KeyError: 'no such layer'`},
	{"exit", `WHO exited with status 3`},
	{"killed", `WHO was killed by signal 9`},
	{"out of memory", `WHO was ended by the kernel: its control group is out of memory`},
	{"slow loader", `WHO.* which waits for its data loader`},
	{"dead loader worker", `WHO, which waits for its data loader .*a process that it started has died: process [0-9]+ .*, killed by signal 9`},
	{"hung loader worker", `WHO, which waits for its data loader .*process [0-9]+ \(python3\) sleeps`},
	{"stuck file system", `WHO, which .*: /tmp/fault/data/batch-7 \(fuse`},
	{"file lock", `WHO, which waits for the file /.*/lock \(.*process [0-9]+ \(flock\) has locked`},
	{"full disk", `WHO, which writes to a file system that is full, /tmp/fault`},
	{"memory from disk", `WHO.* which waits for its memory to come from disk`},
	{"interpreter lock", `WHO, which waits for Python's interpreter lock, .* at hog `},
	{"deadlock", `WHO, which is in a deadlock: its main thread waits for a lock at deadlock .* another thread at hold_lock `},
	{"debugger", `WHO, which is in a debugger`},
	{"stopped", `WHO, which is paused by a signal`},
	{"loop", `WHO, which is computing at spin `},
	{"sleep", `WHO, which sleeps at <lambda> `},
	{"child", `WHO, which waits for a process that it started at .*process [0-9]+ \(sleep\) sleeps`},
	{"server", `WHO, which waits for data.* at unanswering .*the other end is 127.0.0.1:[0-9]+`},
}

// shortages are faults that other tests on the same machine make worse.
var shortages = []fault{
	{"neighbour", `WHO.* which gets too little CPU time: sh \(3 processes\)`},
	{"control group", `WHO.* which is held back by its control group, which allows it 0.1 CPUs`},
}

// paths are faults of the network from the rank's host to the other one.
var paths = []fault{
	{"slow network", `under way between hosts: the slowest link is from host[12] to host[12]`},
	{"broken cable", `the path from WHERE to host[12] loses packets`},
}

// TestWhyNamesFaults plants faults, real ones as far as a host of the lab can have them, and asks gorun why, which is
// not told what is planted.
func TestWhyNamesFaults(t *testing.T) { plant(t, faults, "host1,host2", 10) }

// TestWhyNamesFaultsOfAHost does so where all ranks are on one host.
func TestWhyNamesFaultsOfAHost(t *testing.T) { plant(t, faults, "host1:2", 6) }

// TestWhyNamesShortages does so for too little CPU time and bandwidth, which tests beside it would take too.
func TestWhyNamesShortages(t *testing.T) { plant(t, slices.Concat(shortages, paths), "host1,host2", 4) }

// TestWhyNamesShortagesOfAHost does so on one host.
func TestWhyNamesShortagesOfAHost(t *testing.T) {
	if testing.Short() {
		t.Skip("a part of make test-all")
	}
	plant(t, shortages, "host1:2", 0)
}

// plant has each fault in a rank that a seed chooses, or in some of them in short tests. Nearly all are named, and nobody else is
// blamed at any time.
func plant(t *testing.T, faults []fault, hosts string, short int) {
	c := e2etest.NewCluster(t, 2)
	script, err := filepath.Abs("testdata/faults.py")
	must.Do(t, err)
	shared := c.Shared("faults")
	t.Cleanup(func() { // control groups are no part of a lab
		for _, at := range []string{"", "cpu", "memory"} {
			groups, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", at, "gorun-"+filepath.Base(shared)+"-*"))
			for _, group := range groups {
				must.Report(t, os.Remove(group))
			}
		}
	})
	e2etest.DependsOn(t, "contrib/e2e/faults/testdata")
	random := rand.New(rand.NewPCG(uint64(len(faults)), uint64(42+strings.Count(hosts, ":"))))
	asked, wrong := 0, 0
	for i, n := range random.Perm(len(faults)) {
		rank := random.IntN(2)
		t.Run(faults[n].name, func(t *testing.T) {
			if testing.Short() && i >= short {
				t.Skip("a part of make test-all")
			}
			where := []string{"host1", "host2"}
			if !strings.Contains(hosts, "host2") {
				where[1] = "host1"
			}
			who := func(rank int) string { return fmt.Sprintf("rank %d on %s", rank, where[rank]) }
			want := strings.NewReplacer("WHO", who(rank), "WHERE", where[rank]).Replace(faults[n].want)
			began := time.Now()
			said, firsts := ask(t, c, want, "-H", hosts, e2etest.Python, script, faults[n].name, fmt.Sprint(rank), "/tmp/fault", shared)
			first, rest, _ := strings.Cut(said, "\n")
			asked++
			if !regexp.MustCompile(want).MatchString(first) {
				wrong++
				t.Logf("want %s in\n%s\n%s", want, first, rest)
			}
			for _, line := range firsts {
				if strings.Contains(line, who(1-rank)) && !strings.Contains(line, who(rank)) {
					t.Errorf("rank %d has the fault, and another one is blamed: %s", rank, line)
				}
			}
			t.Logf("after %.1f s: %s", time.Since(began).Seconds(), first)
		})
	}
	if 20*wrong > asked {
		t.Errorf("%d of %d faults were not named", wrong, asked)
	}
	c.ExpectLeft(10*time.Second, "/tmp/fault/checkpoint") // the script's own
}

// ask runs a job of two ranks with a fault until gorun why says what is wanted twice in a row, or for a minute, and returns what it
// said last, and all its first lines. Of a job that has ended it asks what it has recorded.
func ask(t *testing.T, c *e2etest.Cluster, want string, args ...string) (said string, firsts []string) {
	cmd, stdout, stderr := c.Command(slices.Concat([]string{"-np", "2", "--grace", "0.2"}, args)...)
	must.Do(t, cmd.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); cmd.Wait() }()
	is, fit := regexp.MustCompile(want), 0
	for end := time.Now().Add(time.Minute); fit < 2 && time.Now().Before(end); {
		select {
		case <-ended:
			m := regexp.MustCompile(`gorun why (\S+) explains`).FindStringSubmatch(stderr.String())
			if m == nil {
				return "no recording\n" + stderr.String(), firsts
			}
			said = c.GorunBeside("why", m[1]).Stdout + stderr.String()
			return said, append(firsts, firstLine(said))
		case <-time.After(200 * time.Millisecond):
		}
		if stdout.Count("planted") == 0 {
			continue
		}
		said = c.GorunBeside("why").Stdout
		firsts = append(firsts, firstLine(said))
		if is.MatchString(firstLine(said)) {
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
	return said + stderr.String(), firsts
}

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}

// TestNothingIsWrong asks about jobs that are healthy: with Horovod, with DDP and a data loader, and with a rank that saves
// checkpoints. Half of the time the machine is busy.
func TestNothingIsWrong(t *testing.T) {
	if exec.Command(e2etest.Python, "-c", "import torch").Run() != nil {
		t.Skip("no Python with torch")
	}
	times := 100
	if testing.Short() {
		times = 6
	}
	e2etest.DependsOn(t, "contrib/e2e/faults/testdata")
	c := e2etest.NewCluster(t, 2)
	script, err := filepath.Abs("testdata/healthy.py")
	must.Do(t, err)
	for _, job := range []string{"horovod", "ddp", "saves"} {
		cmd, stdout, stderr := c.Command("-np", "2", "-H", "host1,host2", "--grace", "0.2", e2etest.Python, script, job, "0.5")
		must.Do(t, cmd.Start())
		c.Await("steps of "+job, func() bool { return stdout.Count("trains") == 2 })
		var busy []*lab.Cmd
		for n := range times {
			if n == times/2 {
				for range 2 * runtime.NumCPU() {
					spin := c.Host(1).Command(t.Context(), "sh", "-c", "while :; do :; done")
					must.Do(t, spin.Start())
					busy = append(busy, spin)
				}
			}
			why := c.GorunBeside("why")
			if said := why.Stdout; !strings.HasPrefix(said, "nothing is wrong: ") || !strings.Contains(firstLine(said), "computing ") {
				t.Errorf("%s, busy %v: %s%s", job, len(busy) > 0, said, why.Stderr)
			}
		}
		for _, spin := range busy {
			spin.Process.Kill()
			spin.Wait()
		}
		if stop := c.GorunBeside("stop", "--now"); stop.Code != 0 {
			t.Errorf("%s%s", stop.Stderr, stderr)
		}
		cmd.Wait() // which tells that it was stopped
	}
	c.ExpectLeft(10*time.Second, "/tmp/pymp-") // of workers of a loader that are stopped
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
	must.Do(t, os.WriteFile(start, []byte(script), 0o755))
	faults, err := filepath.Abs("testdata/faults.py")
	must.Do(t, err)
	began := time.Now().Add(-time.Second)
	const want = `rank 1 on host2.* which waits for its data loader`
	said, _ := ask(t, c, want, "-H", "host1,host2", "--launcher", start+" {host} {program}", e2etest.Python, faults, "other clocks", "1", "/tmp/fault", shared)
	if !regexp.MustCompile(want).MatchString(firstLine(said)) || regexp.MustCompile(`\dh\d+m`).MatchString(said) {
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
	must.Do(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() }) // whatever comes
	file := filepath.Join(dir, "flight.jsonl")
	recorded := func() string {
		b, _ := os.ReadFile(file) // "" before there is one
		return string(b)
	}
	c.Await("end of the steps", func() bool { return stdout.Count("trained") == 2 })
	must.Do(t, syscall.Kill(c.Pid(2, "gorun worker --daemon"), syscall.SIGUSR2))
	c.Await("recording of twenty operations", func() bool {
		text := recorded()
		return strings.Contains(text, `"reason":"SIGUSR2 on host2"`) && strings.Count(text, `"outcome":"done"`) == 40
	})
	for host := range 2 {
		c.Shell(c.Host(host+1), "touch /tmp/go")
	}
	err := cmd.Wait()
	says := c.GorunBeside("why", file).Stdout
	for _, want := range []string{`(?m)^rank 1 on host2 exited with status 1: ValueError: no more`, `because of the job failed`,
		`host1 recorded 21 operations`, `(?m)^ *allreduce "allreduce.gradient" of 24 bytes of float64: .*; (failed|waits for rank 1 on host2)$`} {
		if err == nil || !regexp.MustCompile(want).MatchString(says) {
			t.Errorf("%v: no %s in\n%s", err, want, says)
		}
	}
	if n := stderr.Count("gorun: the last operations of the ranks are in " + file); n != 1 {
		t.Errorf("the place was named %d times:\n%s", n, stderr)
	}
}
