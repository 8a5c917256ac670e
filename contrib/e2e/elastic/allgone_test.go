package elastic

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/launcher/elastic"
)

// trainSaving is trainOn with a checkpoint of every batch, from which a world begins that has no process of the one
// before.
func trainSaving(c *e2etest.Cluster, args ...string) *e2etest.Training {
	c.T.Helper()
	dir := c.Shared("training")
	until := filepath.Join(dir, "enough")
	j := c.TrainWith(0, []string{"--until", until, "--checkpoint", filepath.Join(dir, "checkpoint")}, args...)
	j.Until = until
	return j
}

// TestAllProcessesLost: where all processes of a world are lost at once, new ones go on from the checkpoint, on a host
// that is ready or on one that returns, and one line reports it.
func TestAllProcessesLost(t *testing.T) {
	t.Parallel()
	one := []string{"--min-np", "1", "--max-np", "1", "--lease", "6", "-H", "host1:1,host2:1"}
	off := func(j *e2etest.Training, host int) { j.Must(j.Host(host).PowerOff()) }
	for name, tc := range map[string]struct {
		args   []string
		ranks  int
		strike func(j *e2etest.Training, host int)
	}{
		"the host of the only rank loses power":  {one, 1, off},
		"both ranks are on a host that hangs up": {[]string{"--min-np", "2", "--max-np", "2", "-H", "host1:2,host2:2"}, 2, func(j *e2etest.Training, host int) { j.Must(j.Host(host).Kill()) }},
		"both hosts restart": {[]string{"-np", "2", "--min-np", "2", "--lease", "6", "-H", "host1:1,host2:1"}, 2, func(j *e2etest.Training, _ int) {
			for host := range 2 {
				off(j, host+1)
			}
			for host := range 2 {
				j.Must(j.Host(host + 1).Boot(j.T.Context()))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := e2etest.NewCluster(t, 2)
			j := trainSaving(c, tc.args...)
			j.Await(`batch 30$`)
			victim := 1
			if !c.Runs(victim, "train.py") { // the first host that is ready has the ranks
				victim = 2
			}
			c.Await("daemon on the other host", func() bool { return c.Runs(3-victim, "gorun worker --daemon") })
			struck := time.Now()
			tc.strike(j, victim)
			j.Again(tc.ranks, struck)
			// The launcher says it, or ranks do where a new process was in a world with one whose loss was noticed later.
			j.Await(fmt.Sprintf(`^gorun: epoch \d+: %d ranks? on \d hosts?, because .*, and no process of before is left: training goes on from what the script loads$|`+
				`gorun: warning: every process that had the training's state is gone: `, tc.ranks))
			j.Enough()
			j.End(tc.ranks)
		})
	}
}

// TestFailsEverywhere: a program that fails wherever it runs ends the job soon with its own status, however many hosts
// it could be tried on, and with slots that are used again.
func TestFailsEverywhere(t *testing.T) {
	c := e2etest.NewCluster(t, 4)
	hosts := "host1:2,host2:2,host3:2,host4:2"
	for name, args := range map[string][]string{
		"one rank":          {"--min-np", "1", "--max-np", "1", "-H", hosts},
		"slots used again":  {"-np", "8", "--min-np", "8", "--blacklist-cooldown-range", "1", "2", "-H", hosts},
		"found by a script": {"-np", "8", "--min-np", "1", "--host-discovery-script", "echo " + hosts + " | tr , '\\n'"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			j := (&e2etest.Cluster{Lab: c.Lab, T: t, Binary: c.Binary, Root: c.Root}).Follow(append(args, "sh", "-c", "echo begins; exit 3")...)
			j.Cmd.Wait()
			took := time.Since(began).Round(time.Millisecond)
			begun, _ := j.Out.Find(`begins$`)
			t.Logf("%d processes failed in %v", len(begun), took)
			if code := j.Cmd.ProcessState.ExitCode(); code != 3 || !j.Out.Has(`^gorun: error: rank \d+ on host\d exited with status 3$`) {
				t.Errorf("exit status %d, want 3\n%s", code, j.Out)
			}
			if took > 60*time.Second { // 10 s on a quiet machine, and the elastic timeout is 10 minutes
				t.Errorf("the job ended after %v only\n%s", took, j.Out)
			}
			j.Idle()
		})
	}
}

// TestOnlyRankKilledAgainAndAgain: what commits in between may be lost any number of times.
func TestOnlyRankKilledAgainAndAgain(t *testing.T) {
	c := e2etest.NewCluster(t, 1)
	j := trainSaving(c, "--min-np", "1", "--max-np", "1", "--blacklist-cooldown-range", "1", "1", "-H", "host1:1")
	for n := range elastic.DefaultLossLimit + 1 {
		j.Await(fmt.Sprintf(`^\[%d\]<stdout>:process %[1]d is rank 0 of 1`, n))
		lines, _ := j.Out.Find(`batch (\d+)$`)
		j.Await(fmt.Sprintf(`batch %d$`, last(lines)+5))
		kill9(j, 1, "train.py")
	}
	j.Await(fmt.Sprintf(`process %d is rank 0 of 1 from batch [1-9]`, elastic.DefaultLossLimit+1))
	j.EndNow(1)
}

// last is the number in the last of some lines, 0 if there is none.
func last(lines [][]string) (n int) {
	if len(lines) > 0 {
		n, _ = strconv.Atoi(lines[len(lines)-1][1])
	}
	return n
}
