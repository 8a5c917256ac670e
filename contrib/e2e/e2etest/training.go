//go:build linux

package e2etest

import (
	"bytes"
	"fmt"
	"math"
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
	"gorun/contrib/must"
)

// Must fails the test at once if the lab could not do something.
func (j *Training) Must(err error) {
	j.T.Helper()
	must.Do(j.T, err)
}

// Record keeps the output of a gorun, with the time of each line.
type Record struct {
	mu    sync.Mutex
	part  []byte
	lines []said
}

type said struct {
	at   time.Time
	text string
}

func (s *Record) Write(b []byte) (int, error) {
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

// Note adds a line of the test's own.
func (s *Record) Note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, said{time.Now(), line})
}

// Find returns the lines that match, with the matches of their groups.
func (s *Record) Find(pattern string) (found [][]string, at []time.Time) {
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

// Has reports whether a line matches.
func (s *Record) Has(pattern string) bool {
	found, _ := s.Find(pattern)
	return len(found) > 0
}

func (s *Record) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, line := range s.lines {
		fmt.Fprintf(&b, "%s %s\n", line.at.Format("04:05.000"), line.text)
	}
	return b.String()
}

// Training is a running elastic job.
type Training struct {
	*Cluster
	Cmd     *lab.Cmd
	Out     *Record
	batches int    // 0 if it runs until Enough
	Until   string // the file that ends it then
	Idle    func() // checks that nothing is left of the job
}

// Trainer returns the command line of testdata/elastic/train.py. It trains with torch if the test asks for it, and in the
// long tests; without, each rank starts a second of a processor earlier.
func (c *Cluster) Trainer() []string {
	c.T.Helper()
	if testing.Short() && !c.Torch {
		return []string{Python, "testdata/elastic/train.py", "--numpy"}
	}
	NeedTorch(c.T)
	return []string{Python, "testdata/elastic/train.py"}
}

// TrainWith starts testdata/elastic/train.py, with flags of its own.
func (c *Cluster) TrainWith(batches int, flags []string, args ...string) *Training {
	c.T.Helper()
	args = append(append(args, c.Trainer()...), "--pause", "0.03", "--batches", strconv.Itoa(batches))
	j := c.Follow(append(args, flags...)...)
	j.batches = batches
	return j
}

// TrainOn is TrainWith until Enough is called.
func (c *Cluster) TrainOn(args ...string) *Training {
	c.T.Helper()
	until := filepath.Join(c.Shared("training"), "enough")
	j := c.TrainWith(0, []string{"--until", until}, args...)
	j.Until = until
	return j
}

// Enough makes the script end at its next commit.
func (j *Training) Enough() {
	j.T.Helper()
	must.Do(j.T, os.WriteFile(j.Until, nil, 0o600))
}

// Follow starts any program and records its lines.
func (c *Cluster) Follow(args ...string) *Training {
	c.T.Helper()
	j := &Training{Cluster: c, Out: &Record{}, Idle: func() { c.ExpectNothingLeft(5 * time.Second) }}
	j.Cmd, _, _ = c.Command(args...)
	j.Cmd.Stdout, j.Cmd.Stderr = j.Out, j.Out
	must.Do(c.T, j.Cmd.Start())
	return j
}

// Ended reports whether gorun has ended.
func (j *Training) Ended() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, j.Cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil || info.Signo != 0
}

// Await waits for a line that matches.
func (j *Training) Await(pattern string) {
	j.T.Helper()
	for deadline := time.Now().Add(120 * time.Second); !j.Out.Has(pattern); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			j.Cmd.Process.Signal(syscall.SIGTERM)
			j.Cmd.Wait()
			j.T.Fatalf("no line matches %s:\n%s", pattern, j.Out)
		}
	}
}

// Succeed waits for the job, and ends the test unless it ended well.
func (j *Training) Succeed() {
	j.T.Helper()
	if err := j.Cmd.Wait(); err != nil {
		j.T.Fatalf("%v\n%s", err, j.Out)
	}
}

// EndNow is End for a training that would go on.
func (j *Training) EndNow(processes int) {
	j.T.Helper()
	j.Enough()
	j.End(processes)
}

// End waits for the job and checks that all processes that ended have done the work, with the same weights as an
// undisturbed job; any number of processes if the number is negative.
func (j *Training) End(processes int) {
	j.T.Helper()
	if err := j.Cmd.Wait(); err != nil {
		j.T.Errorf("%v\n%s", err, j.Out)
		return
	}
	j.Idle()
	ends, _ := j.Out.Find(`process (\d+) ends as rank (\d+) of (\d+) after (\d+) batches, (\d+) worlds: ([0-9.]+) (\w+)`)
	if processes < 0 && len(ends) > 0 {
		processes = len(ends)
	}
	if len(ends) != processes {
		j.T.Errorf("%d processes ended well, want %d\n%s", len(ends), processes, j.Out)
	}
	batches := j.batches
	if j.Until != "" && len(ends) > 0 {
		batches, _ = strconv.Atoi(ends[0][4])
	}
	j.fromLastCommit()
	want := undisturbed(j.Cluster, batches)
	for _, e := range ends {
		norm, _ := strconv.ParseFloat(e[6], 64)
		// An average of three ranks is rounded differently than one of two.
		if e[4] != strconv.Itoa(batches) || e[7] != ends[0][7] || math.Abs(norm-want) > 1e-6*want {
			j.T.Errorf("%s; undisturbed the norm is %.9f, process %s has %s", e[0], want, ends[0][1], ends[0][7])
		}
	}
}

// fromLastCommit checks that no world began before the last commit: the first line of its rank 0 follows all lines of the
// worlds before it, and a batch is printed just before it is committed.
func (j *Training) fromLastCommit() {
	j.T.Helper()
	last := 0
	lines, _ := j.Out.Find(`(?:batch (\d+)$|is rank 0 of \d+ from batch (\d+)$)`)
	for _, m := range lines {
		if m[2] == "" {
			last, _ = strconv.Atoi(m[1])
		} else if from, _ := strconv.Atoi(m[2]); from < last-1 {
			j.T.Errorf("a world goes on from batch %d, although %d was reported\n%s", from, last, j.Out)
		}
	}
}

// undisturbed returns the norm of the weights of an undisturbed job.
func undisturbed(c *Cluster, batches int) float64 {
	t := c.T
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.Binary, slices.Concat([]string{"-np", "1"}, c.Trainer(), []string{"--batches", strconv.Itoa(batches)})...)
	cmd.Dir = c.Root
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

// Pid finds a process on a host.
func (c *Cluster) Pid(host int, args string) int {
	c.T.Helper()
	for _, p := range c.Host(host).Processes() {
		if strings.Contains(p.Args, args) {
			return p.PID
		}
	}
	c.T.Fatalf("no %s on host%d", args, host)
	return 0
}

// Runs reports whether a process runs on a host.
func (c *Cluster) Runs(host int, args string) bool {
	return slices.ContainsFunc(c.Host(host).Processes(), func(p lab.Process) bool { return strings.Contains(p.Args, args) })
}

// NeedTorch skips the test where there is no torch.
func NeedTorch(t *testing.T) {
	t.Helper()
	if !hasTorch() {
		t.Skip("install python3-torch")
	}
}

// hasTorch checks once, because an import takes a second of a processor.
var hasTorch = sync.OnceValue(func() bool { return exec.Command(Python, "-c", "import torch").Run() == nil })

// Again waits until this many ranks continue after a loss, and returns when the first of them did. It fails if they do not
// continue from the last commit, which is at most one batch before the last one printed when the loss happened.
func (j *Training) Again(ranks int, struck time.Time) (goesOn time.Time) {
	j.T.Helper()
	last := 0
	batches, at := j.Out.Find(`batch (\d+)$`)
	for i, b := range batches {
		if at[i].Before(struck) {
			last, _ = strconv.Atoi(b[1])
		}
	}
	j.Cluster.Await(fmt.Sprintf("world of %d", ranks), func() bool {
		found, at := j.Out.Find(fmt.Sprintf(`is rank \d of %d from batch (\d+)`, ranks))
		first := slices.IndexFunc(at, struck.Before)
		if first < 0 {
			return false
		}
		if from, _ := strconv.Atoi(found[first][1]); from < last-1 { // a batch is printed just before it is committed
			j.T.Errorf("%d ranks go on from batch %d, although %d was reported", ranks, from, last)
		}
		goesOn = at[first]
		return true
	})
	return goesOn
}

// InMost returns a function to which subtests report a duration. When they have ended, their median must be within the
// limit; a single one may be slow, because other tests run, too.
func InMost(t *testing.T, what string, limit time.Duration) (took func(time.Duration)) {
	var mu sync.Mutex
	var all []time.Duration
	t.Cleanup(func() {
		slices.Sort(all)
		t.Logf("%s: %v", what, all)
		if len(all) > 0 && Median(all) > limit {
			t.Errorf("%s: %v, want %v at most in most", what, all, limit)
		}
	})
	return func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, d)
	}
}

// DoneAlike expects all ranks to have ended in the world in which they began, with the same weights. The script compares
// them with the sum of all steps, in whole numbers, which does not depend on the order of additions.
func (j *Training) DoneAlike(t *testing.T, ranks, steps int) {
	t.Helper()
	done, _ := j.Out.Find(fmt.Sprintf(`done rank \d of %d: steps %d epoch 1 worlds 1 weights (\w+)$`, ranks, steps))
	if len(done) != ranks {
		t.Errorf("%d ranks are done in the world that they began in\n%s", len(done), j.Out)
	}
	for _, d := range done {
		if d[1] != done[0][1] {
			t.Errorf("weights %s and %s", d[1], done[0][1])
		}
	}
}
