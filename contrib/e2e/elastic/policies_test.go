package elastic

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// worlds are the sizes of the worlds after the first, as the job reported them.
func worlds(j *e2etest.Training) (sizes []string) {
	found, _ := j.Out.Find(`^gorun: epoch \d+: (\d+) ranks? on \d+ hosts?, because`)
	for _, f := range found {
		sizes = append(sizes, f[1])
	}
	return sizes
}

// TestFewerThanMinNP: survivors that are too few wait, in their processes, for a host that comes, and go on from the
// last commit; or end the job when no one comes in time.
func TestFewerThanMinNP(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, timeout string) (*e2etest.HostFile, *e2etest.Training) {
		c := e2etest.NewCluster(t, 3)
		list := c.HostFile("host1:1", "host2:1")
		j := c.Count(nil, "-np", "2", "--min-np", "2", "--elastic-timeout", timeout, "--host-discovery-script", "cat "+list.Name)
		j.Await(`commit 10 epoch 1 size 2`)
		kill9(j, 2, "steps.py")
		j.Await(`^gorun: .*; 1 of 2 slots are there: waiting up to ` + timeout)
		return list, j
	}
	t.Run("a host comes", func(t *testing.T) {
		list, j := begin(t, "1m0s")
		list.Say("host1:1", "host2:1", "host3:1")
		j.Await(`process [01] is rank 0 of 2 from step [1-9]\d`)
		j.Await(`process 2 is rank 1 of 2 from step [1-9]\d`)
		j.Counted(2)
	})
	t.Run("nobody comes", func(t *testing.T) {
		_, j := begin(t, "10s")
		j.Fails(1, `too few slots: 2 needed, 1 there after 10s, after process \d on host2 exited with code 137`,
			`a lower --min-np goes on with fewer ranks, --blacklist-cooldown-range lets failed slots be used again, --elastic-timeout waits longer`)
	})
}

// TestResetLimit: a job whose ranks keep failing ends, on one host too.
func TestResetLimit(t *testing.T) {
	c := e2etest.NewCluster(t, 1)
	j := c.Count(nil, "--min-np", "1", "--reset-limit", "1", "-H", "host1:3")
	j.Await(`commit 10 epoch 1 size 3`)
	kill9(j, 1, "steps.py")
	j.Await(`is rank 1 of 2 from step [1-9]\d`)
	kill9(j, 1, "steps.py")
	j.Fails(1, `the reset limit of 1 is reached: process \d on host1 exited with code 137`,
		`the output of the ranks shows why they fail; a higher --reset-limit lets them begin anew more often`)
}

// TestOnFailure: free slots take the place of a lost rank at once, at the next commit, or are waited for, as the user
// says; and process sets are in every world.
func TestOnFailure(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]struct {
		args   []string
		worlds string
	}{
		"replace": {[]string{"--max-np", "3", "-H", "host1:1,host2:1,host3:1,host4:1"}, "[3]"},
		"shrink":  {[]string{"--max-np", "3", "-H", "host1:1,host2:1,host3:1,host4:1"}, "[2 3]"},
		// Nothing is free before the slot that failed has cooled down.
		"wait": {[]string{"--blacklist-cooldown-range", "2", "2", "-H", "host1:1,host2:1,host3:1"}, "[3]"},
	} {
		t.Run(how, func(t *testing.T) {
			c := e2etest.NewCluster(t, 4)
			j := c.Count([]string{"--ranks", "3", "--sets"}, append(want.args, "-np", "3", "--min-np", "1", "--on-failure", how)...)
			j.Await(`commit 10 epoch \d+ size 3`)
			before := len(worlds(j))
			if how != "wait" { // there is a spare host, and it is warm
				for h := 1; h <= 4; h++ {
					j.Cluster.Await("daemon", func() bool { return c.Runs(h, "gorun worker --daemon") })
				}
			}
			j.Await(`commit 50 `)
			struck := time.Now()
			killProcess(j, 1)
			j.Await(`process [3-9] is rank 2 of 3 from step ([5-9]|\d\d)\d`)
			if how == "wait" {
				_, at := j.Out.Find(`process [3-9] is rank 2 of 3`)
				if took := at[0].Sub(struck); took < 2*time.Second || !j.Out.Has(`2 of 3 slots are there: waiting`) {
					t.Errorf("went on after %v, before the slot was to be used again\n%s", took, j.Out)
				}
			}
			if got := fmt.Sprint(worlds(j)[before:]); got != want.worlds {
				t.Errorf("worlds of %s ranks follow the loss, want %s\n%s", got, want.worlds, j.Out)
			}
			j.Counted(3)
		})
	}
}

// TestVictim: a process that aborts while another host falls silent counts as a victim of that host, and its slot is used
// again once the host is lost.
func TestVictim(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	j := c.Count(nil, "-np", "3", "--min-np", "2", "-H", "host1:1,host2:1,host3:1")
	j.Await(`commit 10 epoch 1 size 3`)
	must.Do(t, c.Host(3).Kill())
	signalProcess(j, 1, syscall.SIGABRT) // as Gloo would, 2 s before the launcher knows
	j.Await(`^gorun: a process failed on host2 after host3 fell silent: it may run there again`)
	j.Await(`process [3-9] is rank 1 of 2 from step [1-9]\d`)
	j.Counted(2)
}

// TestRankLeaves: a rank that exits with 0 in the middle of training does not end the job for the others. Nothing is
// started in its place.
func TestRankLeaves(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	j := c.Count([]string{"--ranks", "3", "--leave", "1@15"}, "-np", "3", "--min-np", "3", "-H", "host1:1,host2:2,host3:1", "--max-np", "3")
	j.Await(`is rank 1 of 2 from step 1[45]`)
	j.Counted(2)
	if ended, _ := j.Out.Find(`process \d leaves`); len(ended) != 1 || fmt.Sprint(worlds(j)) != "[2]" {
		t.Errorf("%d ranks left, then there were worlds of %v\n%s", len(ended), worlds(j), j.Out)
	}
}

// TestOthersThanAnnounced: ranks leave a world because slots were withdrawn, and the next one has a rank that is new
// all the same, for one of them has died on its way, or another slot was offered meanwhile. It is given what the others
// have.
func TestOthersThanAnnounced(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args  []string
		then  func(j *e2etest.Training, list *e2etest.HostFile)
		fresh string
		ranks int
	}{
		"one dies": {[]string{"--on-failure", "wait", "--blacklist-cooldown-range", "1", "2"},
			func(j *e2etest.Training, _ *e2etest.HostFile) { killProcess(j, 1) }, `process 3 is rank 1 of 2`, 2},
		"a slot is offered": {nil, func(_ *e2etest.Training, list *e2etest.HostFile) { list.Say("host1:4") }, `process [3-9] is rank 3 of 4`, 4},
	} {
		t.Run(name, func(t *testing.T) {
			c := e2etest.NewCluster(t, 1)
			list := c.HostFile("host1:3")
			hold := filepath.Join(c.Shared("hold"), "over")
			args := append(tc.args, "-np", "3", "--min-np", "1", "--host-discovery-script", "cat "+list.Name)
			j := c.Count([]string{"--hold", "1@" + hold}, args...)
			j.Await(`commit 10 epoch 1 size 3`)
			list.Say("host1:2")
			j.Await(`process 1 takes its time to leave`)
			tc.then(j, list)
			time.Sleep(2 * time.Second) // discovery looks every second
			must.Do(t, os.WriteFile(hold, nil, 0o600))
			j.Await(tc.fresh + ` from step [1-9]\d`)
			j.Counted(tc.ranks)
		})
	}
}

// TestOwnMachineFirst: a job that begins on gorun's own machine alone takes in hosts elsewhere that are discovered
// later, by whatever name that machine is called, and even if it had no network then.
func TestOwnMachineFirst(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]string{"launcher": "launcher", "unplugged": "localhost"} {
		t.Run(name, func(t *testing.T) {
			c := e2etest.NewCluster(t, 2)
			list := c.HostFile(own + ":1")
			network := func(change func() error) {
				if name != "unplugged" {
					return
				}
				must.Do(t, change())
			}
			network(c.Launcher().Unplug)
			j := c.Count(nil, "--min-np", "1", "--host-discovery-script", "cat "+list.Name)
			j.Await(`commit 10 epoch 1 size 1`)
			network(c.Launcher().Plug)
			list.Say(own+":1", "host1:1", "host2:1")
			j.Await(`process 0 is rank 0 of 3 from step [1-9]\d`)
			list.Say("host1:1", "host2:1")
			j.Await(`process [12] is rank 0 of 2 from step [1-9]\d`)
			j.Counted(2)
		})
	}
}
