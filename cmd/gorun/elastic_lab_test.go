//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gorun/contrib/lab"
)

// record keeps what a gorun writes, and when.
type record struct {
	mu    sync.Mutex
	part  []byte
	lines []said
}

type said struct {
	at   time.Time
	text string
}

func (s *record) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part = append(s.part, b...)
	for {
		i := bytes.IndexByte(s.part, '\n')
		if i < 0 {
			return len(b), nil
		}
		s.lines = append(s.lines, said{time.Now(), string(s.part[:i])})
		s.part = s.part[i+1:]
	}
}

// note puts a line of the test's own among the others.
func (s *record) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, said{time.Now(), line})
}

// find returns the lines that match, with what their groups matched.
func (s *record) find(pattern string) (found [][]string, at []time.Time) {
	re := regexp.MustCompile(pattern)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		if m := re.FindStringSubmatch(line.text); m != nil {
			found, at = append(found, m), append(at, line.at)
		}
	}
	return found, at
}

func (s *record) has(pattern string) bool {
	found, _ := s.find(pattern)
	return len(found) > 0
}

func (s *record) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, line := range s.lines {
		fmt.Fprintf(&b, "%s %s\n", line.at.Format("04:05.000"), line.text)
	}
	return b.String()
}

// training is an elastic job under way.
type training struct {
	*cluster
	cmd     *lab.Cmd
	out     *record
	batches int    // 0 if it goes on until enough
	until   string // the file that ends it then
	idle    func() // checks that nothing is left of the job
}

// train starts testdata/elastic/train.py.
func (c *cluster) train(batches int, args ...string) *training {
	c.t.Helper()
	return c.trainWith(batches, nil, args...)
}

// trainWith is train with flags of the script.
func (c *cluster) trainWith(batches int, flags []string, args ...string) *training {
	c.t.Helper()
	args = append(args, python, "testdata/elastic/train.py", "--pause", "0.03", "--batches", strconv.Itoa(batches))
	j := c.follow(append(args, flags...)...)
	j.batches = batches
	return j
}

// trainOn is train until enough is called.
func (c *cluster) trainOn(args ...string) *training {
	c.t.Helper()
	until := filepath.Join(c.shared("training"), "enough")
	j := c.trainWith(0, []string{"--until", until}, args...)
	j.until = until
	return j
}

func (j *training) enough() {
	j.t.Helper()
	if err := os.WriteFile(j.until, nil, 0o600); err != nil {
		j.t.Fatal(err)
	}
}

// follow starts any program of which the lines are awaited.
func (c *cluster) follow(args ...string) *training {
	c.t.Helper()
	j := &training{cluster: c, out: &record{}, idle: func() { c.expectNothingLeft(5 * time.Second) }}
	j.cmd, _, _ = c.command(args...)
	j.cmd.Stdout, j.cmd.Stderr = j.out, j.out
	if err := j.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	return j
}

// ended tells whether gorun has.
func (j *training) ended() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, j.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil || info.Signo != 0
}

func (j *training) await(pattern string) {
	j.t.Helper()
	for deadline := time.Now().Add(120 * time.Second); !j.out.has(pattern); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			j.cmd.Process.Signal(syscall.SIGTERM)
			j.cmd.Wait()
			j.t.Fatalf("no line matches %s:\n%s", pattern, j.out)
		}
	}
}

// end waits for the job and checks that all processes that ended have done the work, with the same weights as a job
// that nobody disturbed.
func (j *training) end(processes int) {
	j.t.Helper()
	j.finish(processes)
}

// finish is end for any number of processes if it is negative.
func (j *training) finish(processes int) {
	j.t.Helper()
	if err := j.cmd.Wait(); err != nil {
		j.t.Errorf("%v\n%s", err, j.out)
		return
	}
	j.idle()
	ends, _ := j.out.find(`process (\d+) ends as rank (\d+) of (\d+) after (\d+) batches, (\d+) worlds: ([0-9.]+) (\w+)`)
	if processes < 0 && len(ends) > 0 {
		processes = len(ends)
	}
	if len(ends) != processes {
		j.t.Errorf("%d processes ended well, want %d\n%s", len(ends), processes, j.out)
	}
	batches := j.batches
	if j.until != "" && len(ends) > 0 {
		batches, _ = strconv.Atoi(ends[0][4])
	}
	j.fromLastCommit()
	want := undisturbed(j.t, j.root, batches)
	for _, e := range ends {
		norm, _ := strconv.ParseFloat(e[6], 64)
		// An average of three is rounded in another place than one of two.
		if e[4] != strconv.Itoa(batches) || e[7] != ends[0][7] || math.Abs(norm-want) > 1e-6*want {
			j.t.Errorf("%s; undisturbed the norm is %.9f, process %s has %s", e[0], want, ends[0][1], ends[0][7])
		}
	}
}

// fromLastCommit checks that no world began before the last commit: the first line of its rank 0 comes after all that the
// worlds before told, and a batch is told just before it is committed.
func (j *training) fromLastCommit() {
	j.t.Helper()
	last := 0
	lines, _ := j.out.find(`(?:batch (\d+)$|is rank 0 of \d+ from batch (\d+)$)`)
	for _, m := range lines {
		if m[2] == "" {
			last, _ = strconv.Atoi(m[1])
		} else if from, _ := strconv.Atoi(m[2]); from < last-1 {
			j.t.Errorf("a world goes on from batch %d, although %d was told\n%s", from, last, j.out)
		}
	}
}

// undisturbed returns the norm of the weights of a job that goes through.
func undisturbed(t *testing.T, root string, batches int) float64 {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin/gorun"), "-np", "1", python, filepath.Join(root, "testdata/elastic/train.py"), "--batches", strconv.Itoa(batches))
	out, err := cmd.CombinedOutput()
	m := regexp.MustCompile(`worlds: ([0-9.]+) `).FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("undisturbed: %v\n%s", err, out)
	}
	norm, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil || norm < 1 {
		t.Fatalf("undisturbed: the norm is %v, too small to compare (%v)", norm, err)
	}
	return norm
}

// pid finds a process on a host.
func (c *cluster) pid(host int, args string) int {
	c.t.Helper()
	for _, p := range c.Host(host).Processes() {
		if strings.Contains(p.Args, args) {
			return p.PID
		}
	}
	c.t.Fatalf("no %s on host%d", args, host)
	return 0
}

// runs tells whether a process runs on a host.
func (c *cluster) runs(host int, args string) bool {
	return slices.ContainsFunc(c.Host(host).Processes(), func(p lab.Process) bool { return strings.Contains(p.Args, args) })
}

// killProcess kills the process of a number in the job, wherever it is.
func (j *training) killProcess(number int) {
	j.t.Helper()
	for _, h := range j.Hosts() {
		for _, p := range h.Processes() {
			if strings.Contains(p.Args, "testdata/elastic") && processNumber(p) == strconv.Itoa(number) {
				j.must(syscall.Kill(p.PID, syscall.SIGKILL))
				return
			}
		}
	}
	j.t.Fatalf("no process %d\n%s", number, j.out)
}

func needTorch(t *testing.T) {
	if exec.Command(python, "-c", "import torch").Run() != nil {
		t.Skip("install python3-torch")
	}
}

// again waits until so many ranks go on after a loss, and returns when the first of them did. It fails if they do not go
// on from the last commit: from a batch before the last one that was told when it happened.
func (j *training) again(ranks int, struck time.Time) (goesOn time.Time) {
	j.t.Helper()
	last := 0
	batches, at := j.out.find(`batch (\d+)$`)
	for i, b := range batches {
		if at[i].Before(struck) {
			last, _ = strconv.Atoi(b[1])
		}
	}
	j.cluster.await(fmt.Sprintf("world of %d", ranks), func() bool {
		found, at := j.out.find(fmt.Sprintf(`is rank \d of %d from batch (\d+)`, ranks))
		first := slices.IndexFunc(at, struck.Before)
		if first < 0 {
			return false
		}
		if from, _ := strconv.Atoi(found[first][1]); from < last-1 { // a batch is told just before it is committed
			j.t.Errorf("%d ranks go on from batch %d, although %d was told", ranks, from, last)
		}
		goesOn = at[first]
		return true
	})
	return goesOn
}

// inMost returns what the subtests say how long something took to; when they have ended, the median is to be within the limit:
// one of them may be unlucky, for other tests run too.
func inMost(t *testing.T, what string, limit time.Duration) (took func(time.Duration)) {
	var mu sync.Mutex
	var all []time.Duration
	t.Cleanup(func() {
		slices.Sort(all)
		t.Logf("%s: %v", what, all)
		if len(all) > 0 && median(all) > limit {
			t.Errorf("%s: %v, want %v at most in most", what, all, limit)
		}
	})
	return func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, d)
	}
}

// TestLosses: whatever dies in the middle of training, the others go on from the last commit, soon after it was
// noticed, and end with the weights of a job that nobody disturbed.
func TestLosses(t *testing.T) {
	afterLoss := inMost(t, "training went on after a loss was noticed", 2*time.Second)
	kill := func(host int, args string) func(*training) {
		return func(j *training) {
			if err := syscall.Kill(j.pid(host, args), syscall.SIGKILL); err != nil {
				j.t.Fatal(err)
			}
		}
	}
	off := func(hosts ...int) func(*training) {
		return func(j *training) {
			for _, h := range hosts {
				if err := j.Host(h).Kill(); err != nil {
					j.t.Fatal(err)
				}
			}
		}
	}
	for name, tc := range map[string]struct {
		strike func(*training)
		left   int // processes afterwards
		end    int // and in the end
	}{
		"rank":        {kill(3, "train.py"), 2, 2},
		"daemon":      {kill(2, "gorun worker"), 2, 2},
		"host":        {off(3), 2, 2},
		"rank 0":      {kill(1, "train.py"), 2, 2},
		"first host":  {off(1), 2, 2},
		"two at once": {off(1, 3), 1, 1},
		"rank 0 while the next world is formed": {func(j *training) {
			kill(3, "train.py")(j)
			j.await(`gorun: epoch 2: `)
			kill(1, "train.py")(j)
		}, 1, 1},
		"daemon while the next world is formed": {func(j *training) {
			off(3)(j)
			j.await(`gorun: epoch 2: `)
			kill(1, "gorun worker")(j)
		}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			needTorch(t)
			c := newCluster(t, 3)
			// A host of which only the daemon was killed would be back before the end.
			j := c.train(120, "--min-np", "1", "--on-failure", "shrink", "--blacklist-cooldown-range", "600", "600", "-H", "host1:1,host2:1,host3:1")
			j.await(`batch 30$`)
			struck := time.Now()
			tc.strike(j)
			goesOn := j.again(tc.left, struck)
			noticed := struck
			if _, said := j.out.find(`gorun: `); slices.ContainsFunc(said, struck.Before) {
				noticed = said[slices.IndexFunc(said, struck.Before)]
			}
			took := goesOn.Sub(noticed).Round(time.Millisecond)
			t.Logf("%s: noticed after %v, training goes on %v later", name, noticed.Sub(struck).Round(time.Millisecond), took)
			if took > 10*time.Second { // which is five times what most may take: other tests run, too
				t.Errorf("training went on after %v only", took)
			}
			afterLoss(took)
			j.end(tc.end)
		})
	}
}

// TestLossesInCommit: processes end at the worst places: when the others have committed, before they asked whether hosts
// come or go, and when the next world takes over the state. Nothing that survivors committed is done again.
func TestLossesInCommit(t *testing.T) {
	for name, tc := range map[string]struct {
		die  []string
		left int
	}{
		"rank 0, which decides about hosts":        {[]string{"0:40:after"}, 2},
		"all but one, at different places":         {[]string{"0:40:before", "2:40:after"}, 1},
		"rank 0 of the next world":                 {[]string{"2:40:after", "0:2:sync"}, 1},
		"the other one when the next world is new": {[]string{"0:40:batch", "2:2:sync"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			needTorch(t)
			c := newCluster(t, 3)
			var die []string
			for _, d := range tc.die {
				die = append(die, "--die", d)
			}
			j := c.trainWith(60, die, "--min-np", "1", "--on-failure", "shrink", "-H", "host1:1,host2:1,host3:1")
			j.await(fmt.Sprintf(`is rank \d of %d from batch 40$`, tc.left))
			j.end(tc.left)
		})
	}
}

// TestPoweredOffHostReturns: a host that falls silent is given up when its lease ends; when it is back, it is used
// again.
func TestPoweredOffHostReturns(t *testing.T) {
	needTorch(t)
	c := newCluster(t, 3)
	j := c.trainOn("--min-np", "1", "-H", "host1:1,host2:1,host3:1")
	j.await(`is rank 2 of 3`) // hosts may come one after the other
	j.await(`batch 30$`)
	struck := time.Now()
	if err := c.Host(3).PowerOff(); err != nil {
		t.Fatal(err)
	}
	at := j.again(2, struck)
	_, lost := j.out.find(`gorun: host3 is lost: `)
	if len(lost) == 0 {
		t.Fatalf("it is not told that host3 is lost\n%s", j.out)
	}
	noticed, took := lost[0].Sub(struck).Round(time.Millisecond), at.Sub(lost[0]).Round(time.Millisecond)
	t.Logf("noticed after %v, training goes on %v later", noticed, took)
	const lease = 30 * time.Second
	if noticed < lease-2*time.Second || noticed > lease+10*time.Second { // what was heard last may be a little older than the loss
		t.Errorf("noticed after %v, want the lease of %v and a little", noticed, lease)
	}
	if took > 2*time.Second { // 0.1 s on a quiet machine
		t.Errorf("training went on %v after the loss was noticed", took)
	}
	if err := c.Host(3).Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	j.await(`process [3-9] is rank 2 of 3 from batch [1-9]`)
	j.enough()
	j.end(3)
}

// TestHostShutsDown: a host is shut down in good order, and everything there gets TERM, its rank first. That has failed nothing:
// the host is lost, and used again soon.
func TestHostShutsDown(t *testing.T) {
	needTorch(t)
	c := newCluster(t, 3)
	j := c.trainOn("-np", "3", "--min-np", "1", "-H", "host1:1,host2:1,host3:1")
	j.await(`is rank 2 of 3`)
	j.await(`batch 30$`)
	struck := time.Now()
	all := c.Host(3).Processes()
	for _, what := range []string{"train.py", "gorun worker", "sshd: root"} {
		for _, p := range all {
			if strings.Contains(p.Args, what) {
				syscall.Kill(p.PID, syscall.SIGTERM) // it may have ended with the one before
			}
		}
	}
	j.again(2, struck)
	j.await(`gorun: host3 is lost: `)
	j.await(`gorun: host3 is tried again in ([5-9]|10)s`)
	if lines, _ := j.out.find(`gorun: rank 2 on host3`); len(lines) > 0 {
		t.Errorf("the rank is said to have failed: %q\n%s", lines, j.out)
	}
	j.await(`process 3 is rank 2 of 3 from batch [1-9]`)
	j.enough()
	j.end(3)
}

// TestScale: hosts come and go as a script says, under load.
func TestScale(t *testing.T) {
	needTorch(t)
	c := newCluster(t, 4)
	list := c.hostFile("host1:1", "host2:1")
	j := c.trainOn("--min-np", "1", "--host-discovery-script", "cat "+list.name)
	j.await(`is rank 1 of 2 from batch \d`) // the first host need not wait for the second
	j.await(`batch 20$`)
	list.say("host1:1", "host2:1", "host3:1", "host4:1")
	j.await(`is rank 3 of 4 from batch [1-9]`)
	list.say("host3:1")
	j.await(`is rank 0 of 1 from batch [1-9]`)
	list.say("host3:1", "host1:1", "host2:1")
	j.await(`process [4-9] is rank 2 of 3 from batch [1-9]`)
	j.enough()
	j.end(3)
}

// TestRestartElsewhere: vSphere HA starts a machine again that has lost its host, and DHCP gives it another address. It is
// used again in the job that lost it, as a discovery script says.
func TestRestartElsewhere(t *testing.T) {
	needTorch(t)
	c := newCluster(t, 3)
	list := c.hostFile("host1:1", "host2:1", "host3:1")
	j := c.trainOn("--min-np", "2", "--lease", "6", "--host-discovery-script", "cat "+list.name)
	j.await(`is rank 2 of 3`)
	j.await(`batch 20$`)
	struck := time.Now()
	j.must(c.Host(3).PowerOff())
	j.again(2, struck)
	j.must(c.Host(3).SetAddress(netip.MustParseAddr("10.77.0.73")))
	j.must(c.Host(3).Boot(t.Context()))
	back := time.Now()
	j.await(`process [3-9] is rank 2 of 3 from batch [1-9]`)
	t.Logf("%v after its start at another address the host trains", time.Since(back).Round(time.Millisecond))
	j.enough()
	j.end(3)
}

// TestSpareHost: a host that the job has no ranks for is ready all the same, so that a lost one is replaced by nothing
// but the start of its processes; also if it is found at another address by then.
func TestSpareHost(t *testing.T) {
	for name, address := range map[string]string{"where it was": "", "elsewhere": "10.77.0.79"} {
		t.Run(name, func(t *testing.T) {
			needTorch(t)
			c := newCluster(t, 3)
			j := c.trainOn("-v", "--min-np", "2", "--max-np", "2", "-H", "host1:1,host2:1,host3:1")
			j.await(`batch 1$`)
			spare, victim := 0, 0 // whoever is ready first has ranks
			for h := 1; h <= 3; h++ {
				if c.runs(h, "train.py") {
					victim = h
				} else {
					spare = h
				}
			}
			if spare == 0 {
				t.Fatalf("all hosts have ranks\n%s", j.out)
			}
			const daemon = "gorun worker --daemon"
			c.await("daemon on the spare host", func() bool { return c.runs(spare, daemon) })
			warm := j.pid(spare, daemon)
			j.await(`batch 30$`)
			if address != "" {
				// A host's sshd keeps a connection to an address that is gone until TCP gives it up.
				j.idle = func() { c.expectLeft(5*time.Second, "sshd: ") }
				if err := c.Host(spare).SetAddress(netip.MustParseAddr(address)); err != nil {
					t.Fatal(err)
				}
				j.await(fmt.Sprintf(`host%d: is found at %s now`, spare, address))
			}
			struck := time.Now()
			if err := c.Host(victim).Kill(); err != nil {
				t.Fatal(err)
			}
			j.await(`process 2 is rank 1 of 2 from batch [1-9]`)
			_, lost := j.out.find(fmt.Sprintf(`gorun: host%d is lost: `, victim))
			_, at := j.out.find(`process 2 is rank 1 of 2 from batch [1-9]`)
			if len(lost) == 0 {
				t.Fatalf("nobody says that host%d is lost\n%s", victim, j.out)
			}
			t.Logf("noticed after %v; %v later the spare host has the state and trains", lost[0].Sub(struck).Round(time.Millisecond), at[0].Sub(lost[0]).Round(time.Millisecond))
			if now := j.pid(spare, daemon); now != warm {
				t.Errorf("the spare host has another daemon (%d) than before (%d)\n%s", now, warm, j.out)
			}
			if !c.runs(spare, "train.py") {
				t.Errorf("no rank on the spare host\n%s", j.out)
			}
			if took := at[0].Sub(lost[0]); took > 60*time.Second { // 2 s on a quiet machine, most of it the import of torch
				t.Errorf("the spare host trained after %v only", took)
			}
			j.enough()
			j.end(2)
		})
	}
}
