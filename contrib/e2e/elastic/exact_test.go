//go:build linux

package elastic

import (
	"flag"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

var stepFaults = flag.Int("step-faults", 5, "how many faults TestNoStepLost has")

var stepSeed = flag.Uint64("step-seed", 1, "which faults TestNoStepLost has")

// TestNoStepLost trains with torch while ranks kill themselves at seeded moments of a step, of a commit and of sync(), one
// or two at once, on all hosts, rank 0 among them. No loss costs more than the step that it interrupts, each sample of an
// epoch counts once, and the weights are those of the same worlds replayed in one process, bit by bit.
func TestNoStepLost(t *testing.T) {
	e2etest.NeedTorch(t)
	c := e2etest.NewCluster(t, 3)
	dir := c.Shared("exact")
	script := []string{e2etest.Python, "testdata/elastic/exact.py", "--log", dir, "--seed", strconv.FormatUint(*stepSeed, 10)}
	// The survivors go on at once, and a process in the place of a lost one joins them at a commit.
	args := append([]string{"--min-np", "1", "-np", "4", "--on-failure", "shrink", "--blacklist-cooldown-range", "0.1", "0.2",
		"-H", "host1:2,host2:1,host3:1"}, script...)
	j := c.Follow(append(args, "--faults", strconv.Itoa(*stepFaults))...)
	limit := 2*time.Minute + time.Duration(*stepFaults)*20*time.Second
	watchdog := time.AfterFunc(limit, func() { j.Cmd.Process.Signal(syscall.SIGTERM) })
	defer watchdog.Stop()
	if err := j.Cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, j.Out)
	}
	if worlds, _ := j.Out.Find(`^gorun: epoch \d+: `); len(worlds) < *stepFaults {
		t.Errorf("%d faults made %d worlds\n%s", *stepFaults, len(worlds), j.Out)
	}
	check := exec.CommandContext(t.Context(), script[0], append(script[1:], "--check")...)
	check.Dir, check.Env = c.Root, append(check.Environ(), "PYTHONPATH="+filepath.Join(c.Root, "contrib/python"))
	out, err := check.CombinedOutput()
	if err != nil {
		t.Fatalf("seed %d: %v\n%s\n%s", *stepSeed, err, out, j.Out)
	}
	t.Logf("%s", out)
}
