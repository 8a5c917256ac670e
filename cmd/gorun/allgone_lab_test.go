//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"gorun/launcher/elastic"
)

// trainSaving is trainOn with a checkpoint of every batch, from which a world begins that has no process of the one before.
func (c *cluster) trainSaving(args ...string) *training {
	c.t.Helper()
	dir := c.shared("training")
	until := filepath.Join(dir, "enough")
	j := c.trainWith(0, []string{"--until", until, "--checkpoint", filepath.Join(dir, "checkpoint")}, args...)
	j.until = until
	return j
}

// TestAllProcessesLost: where all processes of a world are lost at once, new ones go on from the checkpoint, on a host that is
// ready or on one that returns, and one line says so.
func TestAllProcessesLost(t *testing.T) {
	one := []string{"--min-np", "1", "--max-np", "1", "--lease", "6", "-H", "host1:1,host2:1"}
	kill := func(j *training, host int) { j.kill9(host, "train.py") }
	off := func(j *training, host int) { j.must(j.Host(host).PowerOff()) }
	for name, tc := range map[string]struct {
		hosts  int
		args   []string
		ranks  int
		strike func(j *training, host int)
	}{
		"the only rank is killed":                {2, one, 1, kill},
		"the host of the only rank loses power":  {2, one, 1, off},
		"both ranks are on a host that hangs up": {2, []string{"--min-np", "2", "--max-np", "2", "-H", "host1:2,host2:2"}, 2, func(j *training, host int) { j.must(j.Host(host).Kill()) }},
		"the only host restarts": {1, []string{"--min-np", "1", "--lease", "6", "-H", "host1:1"}, 1, func(j *training, host int) {
			off(j, host)
			j.must(j.Host(host).Boot(j.t.Context()))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			needTorch(t)
			c := newCluster(t, tc.hosts)
			j := c.trainSaving(tc.args...)
			j.await(`batch 30$`)
			victim := 1
			if !c.runs(victim, "train.py") { // the first host that is ready has the ranks
				victim = 2
			}
			if tc.hosts > 1 { // the spare one has its daemon
				c.await("daemon on the spare host", func() bool { return c.runs(3-victim, "gorun worker --daemon") })
			}
			struck := time.Now()
			tc.strike(j, victim)
			j.again(tc.ranks, struck)
			j.await(fmt.Sprintf(`^gorun: epoch 2: %d ranks? on 1 host, because .*, and no process of before is left: training goes on from what the script loads$`, tc.ranks))
			j.enough()
			j.end(tc.ranks)
		})
	}
}

// TestFailsEverywhere: a program that fails wherever it runs ends the job soon with its own status, however many hosts it could be tried on,
// and with slots that are used again.
func TestFailsEverywhere(t *testing.T) {
	c := newCluster(t, 4)
	hosts := "host1:2,host2:2,host3:2,host4:2"
	for name, args := range map[string][]string{
		"one rank":           {"--min-np", "1", "--max-np", "1", "-H", hosts},
		"a host's ranks":     {"-np", "2", "--min-np", "1", "--max-np", "2", "-H", hosts},
		"slots used again":   {"-np", "8", "--min-np", "8", "--blacklist-cooldown-range", "1", "2", "-H", hosts},
		"found by a script":  {"-np", "8", "--min-np", "1", "--host-discovery-script", "echo " + hosts + " | tr , '\\n'"},
		"that adds no slots": {"-np", "8", "--min-np", "5", "--host-discovery-script", "echo " + hosts + " | tr , '\\n'"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			j := (&cluster{c.Lab, t, c.binary, c.root}).follow(append(args, "sh", "-c", "echo begins; exit 3")...)
			j.cmd.Wait()
			took := time.Since(began).Round(time.Millisecond)
			begun, _ := j.out.find(`begins$`)
			t.Logf("%d processes failed in %v", len(begun), took)
			if code := j.cmd.ProcessState.ExitCode(); code != 3 || !j.out.has(`^gorun: error: rank \d+ on host\d exited with status 3$`) {
				t.Errorf("exit status %d, want 3\n%s", code, j.out)
			}
			if took > 60*time.Second { // 10 s on a quiet machine, and the elastic timeout is 10 minutes
				t.Errorf("the job ended after %v only\n%s", took, j.out)
			}
			j.idle()
		})
	}
}

// TestOnlyRankKilledAgainAndAgain: what commits in between may be lost any number of times.
func TestOnlyRankKilledAgainAndAgain(t *testing.T) {
	needTorch(t)
	c := newCluster(t, 1)
	j := c.trainSaving("--min-np", "1", "--max-np", "1", "--blacklist-cooldown-range", "1", "1", "-H", "host1:1")
	for n := range elastic.DefaultLossLimit + 1 {
		j.await(fmt.Sprintf(`^\[%d\]<stdout>:process %[1]d is rank 0 of 1`, n))
		lines, _ := j.out.find(`batch (\d+)$`)
		j.await(fmt.Sprintf(`batch %d$`, last(lines)+5))
		j.kill9(1, "train.py")
	}
	j.await(fmt.Sprintf(`process %d is rank 0 of 1 from batch [1-9]`, elastic.DefaultLossLimit+1))
	j.enough()
	j.end(1)
}

// last is the number in the last of some lines, 0 if there is none.
func last(lines [][]string) (n int) {
	if len(lines) > 0 {
		n, _ = strconv.Atoi(lines[len(lines)-1][1])
	}
	return n
}

// TestAllHostsRestart: all hosts of a job lose their power at once and are back a little later. The job waits for them and goes on.
func TestAllHostsRestart(t *testing.T) {
	needTorch(t)
	c := newCluster(t, 2)
	j := c.trainSaving("-np", "2", "--min-np", "2", "--lease", "6", "-H", "host1:1,host2:1")
	j.await(`batch 30$`)
	struck := time.Now()
	for host := range 2 {
		j.must(c.Host(host + 1).PowerOff())
	}
	for host := range 2 {
		j.must(c.Host(host + 1).Boot(t.Context()))
	}
	j.again(2, struck)
	j.await(`training goes on from what the script`)
	j.enough()
	j.end(2)
}
