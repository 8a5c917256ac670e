package elastic

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
)

var evacuations = flag.Int("evacuations", 3, "how many hosts TestEvacuations drains")

var stepFaults = flag.Int("step-faults", 4, "how many faults TestNoStepLost has")

// The faults of seed 119 are of many kinds: the host of rank 0, a rank within commit(), one in recovery, the power of a host.
var stepSeed = flag.Uint64("step-seed", 119, "which faults TestNoStepLost has")

// exact is a training by testdata/elastic/exact.py, which strikes itself.
type exact struct {
	*e2etest.Cluster
	dir    string
	script []string
}

func newExact(c *e2etest.Cluster, flags ...string) *exact {
	dir := c.Shared("exact")
	script := []string{e2etest.Python, "testdata/elastic/exact.py", "--log", dir, "--seed", strconv.FormatUint(*stepSeed, 10)}
	return &exact{c, dir, append(script, flags...)}
}

// strikes carries out what the script cannot do itself, until the job has ended: to lose a host, or the launcher's, or to drain
// one. strike reports whether there was one.
func (x *exact) strikes(ended func() bool, strike func(host string) bool) {
	for ; !ended(); time.Sleep(5 * time.Millisecond) {
		orders, _ := filepath.Glob(filepath.Join(x.dir, "strike.*"))
		for _, order := range orders {
			if host, err := os.ReadFile(order); err == nil && strings.HasSuffix(string(host), "\n") && strike(strings.TrimSpace(string(host))) {
				os.Remove(order)
			}
		}
	}
}

// check holds what the ranks have noted against a training without faults.
func (x *exact) check(out *e2etest.Record) {
	x.T.Helper()
	check := exec.CommandContext(x.T.Context(), x.script[0], append(x.script[1:], "--check")...)
	check.Dir, check.Env = x.Root, append(check.Environ(), "PYTHONPATH="+filepath.Join(x.Root, "contrib/python"))
	said, err := check.CombinedOutput()
	if err != nil {
		x.T.Fatalf("seed %d: %v\n%s\n%s", *stepSeed, err, said, out)
	}
	x.T.Logf("%s", said)
}

// limit is how long a training with so many faults may take.
func limit(faults int) time.Duration { return 2*time.Minute + time.Duration(faults)*30*time.Second }

// TestNoStepLost trains with torch while ranks kill themselves, or all that gorun runs on their host, at seeded moments of a
// step, of a commit and of sync(), and while hosts lose their power: one or two at once, soon after each other, and rank 0
// among them. No loss costs more than the step that it interrupts, each sample of an epoch counts once, and the weights are
// those of the same worlds replayed in one process, bit by bit.
func TestNoStepLost(t *testing.T) {
	e2etest.NeedTorch(t)
	t.Parallel()
	// Each has half of the faults.
	for name, flags := range map[string][]string{"DistributedOptimizer": nil, "DDP": {"--ddp"}} {
		t.Run(name, func(t *testing.T) { noStepLost(newExact(e2etest.NewCluster(t, 3), flags...)) })
	}
}

func noStepLost(x *exact) {
	t := x.T
	// The survivors go on at once with spares, and a process in the place of a lost one joins them at a commit.
	args := append([]string{"--min-np", "1", "-np", "4", "--spares", "2", "--on-failure", "shrink",
		"--blacklist-cooldown-range", "0.1", "0.2", "-H", "host1:2,host2:2,host3:2"}, x.script...)
	faults := max(*stepFaults/2, 1)
	j := x.Follow(append(args, "--faults", strconv.Itoa(faults))...)
	watchdog := time.AfterFunc(limit(faults), func() { j.Cmd.Process.Signal(syscall.SIGTERM) })
	defer watchdog.Stop()
	x.strikes(j.Ended, func(host string) bool {
		h := x.Host(slices.IndexFunc(x.Hosts(), func(h *lab.LabHost) bool { return h.Name() == host }) + 1)
		j.Must(h.Kill())
		time.Sleep(2 * time.Second) // until it is lost
		j.Must(h.Boot(t.Context()))
		return true
	})
	j.Succeed()
	if worlds, _ := j.Out.Find(`^gorun: epoch \d+: `); len(worlds) < faults {
		t.Errorf("%d faults made %d worlds\n%s", faults, len(worlds), j.Out)
	}
	x.check(j.Out)
}

// TestNoStepLostToTakeover is TestNoStepLost in a cluster, where the launcher and its host are lost, too: another one carries
// the job on, as one line at least says. What the ranks have noted tells that no step was lost: it fails if they go back to an
// older commit after that, or leave an update out. The launcher's host may have ranks, whose step ends then, or spares only.
func TestNoStepLostToTakeover(t *testing.T) {
	e2etest.NeedTorch(t)
	s := e2etest.NewLasting(t, 4)
	x, faults := newExact(s.Cluster, "--launcher"), max(2, *stepFaults/10)
	args := slices.Concat(s.Args, []string{"--detach", "--lease", "3", "--min-np", "1", "-np", "4", "--spares", "2", "--on-failure", "shrink",
		"--blacklist-cooldown-range", "0.1", "0.2"}, x.script, []string{"--faults", strconv.Itoa(faults)})
	cmd, job, stderr := s.Command(args...)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	j := x.Follow("attach", "--cluster", "host1", "--cluster-key-file", "/root/.ssh/key", strings.TrimSpace(job.String()))
	watchdog := time.AfterFunc(limit(faults), func() { j.Cmd.Process.Signal(syscall.SIGTERM) })
	defer watchdog.Stop()
	taken := 0
	x.strikes(j.Ended, func(host string) bool {
		for i, h := range x.Hosts() {
			launcher := host == "launcher" && x.Runs(i+1, " --detach ")
			if !launcher && h.Name() != host {
				continue
			}
			s.PowerOff(i)
			s.Boot(i)
			if launcher {
				taken++
			}
			return true
		}
		return false // another launcher is about to begin
	})
	j.Succeed()
	if taken == 0 || !j.Out.Has(`goes on by the launcher on host\d`) { // who looks on may miss one that is lost at once
		t.Errorf("the launcher was lost %d times\n%s", taken, j.Out)
	}
	x.check(j.Out)
	s.ExpectIdle()
}

// TestEvacuations drains hosts amid a training, one after the other, and lets the job use them again. Spares take the places of
// their ranks, or else the world shrinks. No step is begun twice, and each sample counts once. The command ends when no rank
// runs on the host.
func TestEvacuations(t *testing.T) {
	e2etest.NeedTorch(t)
	x := newExact(e2etest.NewCluster(t, 3), "--evacuate")
	args := append([]string{"--min-np", "1", "-np", "4", "--spares", "2", "-H", "host1:2,host2:2,host3:2"}, x.script...)
	j := x.Follow(append(args, "--faults", strconv.Itoa(*evacuations))...)
	watchdog := time.AfterFunc(limit(*evacuations), func() { j.Cmd.Process.Signal(syscall.SIGTERM) })
	defer watchdog.Stop()
	drained := 0
	x.strikes(j.Ended, func(host string) bool {
		for _, order := range []struct {
			args []string
			want string
		}{{[]string{"drain", "1", host}, "gorun: no rank of job 1 runs on " + host + "\n"}, {[]string{"drain", "--undo", "1", host}, "again"}} {
			if r := x.GorunBeside(order.args...); (r.Code != 0 || !strings.Contains(r.Stdout, order.want)) && !j.Ended() {
				t.Errorf("%q ended with %d: %s%s", order.args, r.Code, r.Stdout, r.Stderr)
			}
		}
		drained++
		return true
	})
	j.Succeed()
	if drained < *evacuations {
		t.Errorf("%d hosts were drained", drained)
	}
	x.check(j.Out)
}
