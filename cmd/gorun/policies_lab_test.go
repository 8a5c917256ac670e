//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What users say about elastic jobs, each on hosts that lose ranks: testdata/elastic/steps.py adds what is known beforehand
// and fails by itself if a step is lost or done twice.

// count starts steps.py, which goes on until enough is called.
func (c *cluster) count(script []string, args ...string) *training {
	c.t.Helper()
	until := filepath.Join(c.shared("counting"), "enough")
	args = append(args, python, "testdata/elastic/steps.py", "--tell", "--steps", "20", "--commit", "1", "--pause", "0.02", "--until", until)
	j := c.follow(append(args, script...)...)
	j.until = until
	return j
}

// counted waits for the job and checks that so many ranks ended well, all with the same weights.
func (j *training) counted(ranks int) {
	j.t.Helper()
	j.enough()
	if err := j.cmd.Wait(); err != nil {
		j.t.Fatalf("%v\n%s", err, j.out)
	}
	j.idle()
	ends, _ := j.out.find(fmt.Sprintf(`done rank \d of %d: steps (\d+) .* weights (\w+)`, ranks))
	if len(ends) != ranks {
		j.t.Fatalf("%d of %d ranks ended well\n%s", len(ends), ranks, j.out)
	}
	for _, e := range ends {
		if e[1] != ends[0][1] || e[2] != ends[0][2] {
			j.t.Errorf("ranks end differently: %q", ends)
		}
	}
}

// fails waits for a job that ends with a status, an error and a hint.
func (j *training) fails(code int, said, hint string) {
	j.t.Helper()
	j.cmd.Wait()
	if got := j.cmd.ProcessState.ExitCode(); got != code || !j.out.has(`^gorun: error: `+said) || !j.out.has(`^gorun: hint: `+hint) {
		j.t.Errorf("exit status %d, want %d, %q and %q\n%s", got, code, said, hint, j.out)
	}
	j.idle()
}

// worlds are the sizes of the worlds after the first, as they were told.
func (j *training) worlds() (sizes []string) {
	found, _ := j.out.find(`^gorun: epoch \d+: (\d+) ranks? on \d+ hosts?, because`)
	for _, f := range found {
		sizes = append(sizes, f[1])
	}
	return sizes
}

// hostFile is a discovery script's.
type hostFile struct {
	c    *cluster
	name string
}

func (c *cluster) hostFile(hosts ...string) *hostFile {
	c.t.Helper()
	f := &hostFile{c, filepath.Join(c.shared("hosts"), "list")}
	f.say(hosts...)
	return f
}

// say has the script name these hosts from now on.
func (f *hostFile) say(hosts ...string) {
	f.c.t.Helper()
	if err := os.WriteFile(f.name+".new", []byte(strings.Join(hosts, "\n")+"\n"), 0o600); err != nil {
		f.c.t.Fatal(err)
	}
	if err := os.Rename(f.name+".new", f.name); err != nil {
		f.c.t.Fatal(err)
	}
}

// TestFewerThanMinNP: survivors that are too few wait, in their processes, for a host that comes, and go on from the last
// commit; or end the job when nobody comes in time.
func TestFewerThanMinNP(t *testing.T) {
	begin := func(t *testing.T, timeout string) (*hostFile, *training) {
		c := newCluster(t, 3)
		list := c.hostFile("host1:1", "host2:1")
		j := c.count(nil, "-np", "2", "--min-np", "2", "--elastic-timeout", timeout, "--host-discovery-script", "cat "+list.name)
		j.await(`commit 10 epoch 1 size 2`)
		j.kill9(2, "steps.py")
		j.await(`^gorun: .*; 1 of 2 slots are there: waiting up to ` + timeout)
		return list, j
	}
	t.Run("a host comes", func(t *testing.T) {
		list, j := begin(t, "1m0s")
		list.say("host1:1", "host2:1", "host3:1")
		j.await(`process [01] is rank 0 of 2 from step [1-9]\d`)
		j.await(`process 2 is rank 1 of 2 from step [1-9]\d`)
		j.counted(2)
	})
	t.Run("nobody comes", func(t *testing.T) {
		_, j := begin(t, "2s")
		j.fails(1, `slots needed: 2, there after 2s: 1, after process \d on host2 exited with code 137`,
			`--min-np goes on with fewer, --blacklist-cooldown-range uses again what failed, --elastic-timeout waits longer`)
	})
}

// TestResetLimit: a job whose ranks keep failing ends, on one host too.
func TestResetLimit(t *testing.T) {
	c := newCluster(t, 1)
	j := c.count(nil, "--min-np", "1", "--reset-limit", "1", "-H", "host1:3")
	j.await(`commit 10 epoch 1 size 3`)
	j.kill9(1, "steps.py")
	j.await(`is rank 1 of 2 from step [1-9]\d`)
	j.kill9(1, "steps.py")
	j.fails(1, `the reset limit of 1 is reached: process \d on host1 exited with code 137`,
		`what made ranks fail is in their output; --reset-limit lets them begin anew more often`)
}

// TestOnFailure: free slots take the place of a lost rank at once, at the next commit, or are waited for, as the user says;
// and process sets are in every world.
func TestOnFailure(t *testing.T) {
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
			c := newCluster(t, 4)
			j := c.count([]string{"--ranks", "3", "--sets"}, append(want.args, "-np", "3", "--min-np", "1", "--on-failure", how)...)
			j.await(`commit 10 epoch \d+ size 3`)
			before := len(j.worlds())
			if how != "wait" { // there is a spare host, and it is warm
				for h := 1; h <= 4; h++ {
					j.cluster.await("daemon", func() bool { return c.runs(h, "gorun worker --daemon") })
				}
			}
			j.await(`commit 50 `)
			struck := time.Now()
			j.killProcess(1)
			j.await(`process [3-9] is rank 2 of 3 from step [5-9]\d`)
			if how == "wait" {
				_, at := j.out.find(`process [3-9] is rank 2 of 3`)
				if took := at[0].Sub(struck); took < 2*time.Second || !j.out.has(`2 of 3 slots are there: waiting`) {
					t.Errorf("went on after %v, before the slot was to be used again\n%s", took, j.out)
				}
			}
			if got := fmt.Sprint(j.worlds()[before:]); got != want.worlds {
				t.Errorf("worlds of %s ranks follow the loss, want %s\n%s", got, want.worlds, j.out)
			}
			j.counted(3)
		})
	}
}

// TestCooldown: a host that was lost is used again when its cooldown is over, not before.
func TestCooldown(t *testing.T) {
	c := newCluster(t, 2)
	j := c.count(nil, "-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "3", "3", "-H", "host1:1,host2:1")
	j.await(`commit 10 epoch 1 size 2`)
	j.kill9(2, "gorun worker --daemon")
	j.await(`process 2 is rank 1 of 2 from step [1-9]\d`)
	_, lost := j.out.find(`^gorun: host2 is lost: `)
	_, back := j.out.find(`process 2 is rank 1 of 2`)
	if len(lost) != 1 || back[0].Sub(lost[0]) < 3*time.Second {
		t.Errorf("lost at %v, and again there at %v\n%s", lost, back, j.out)
	}
	if got := fmt.Sprint(j.worlds()); got != "[1 2]" {
		t.Errorf("worlds of %s ranks, want 1 and then 2\n%s", got, j.out)
	}
	j.counted(2)
}

// TestRankLeaves: a rank that exits with 0 in the middle of training does not end the job for the others. Nothing is
// started in its place.
func TestRankLeaves(t *testing.T) {
	c := newCluster(t, 3)
	j := c.count([]string{"--ranks", "3", "--leave", "1@15"}, "-np", "3", "--min-np", "3", "-H", "host1:1,host2:2,host3:1", "--max-np", "3")
	j.await(`is rank 1 of 2 from step 1[45]`)
	j.counted(2)
	if ended, _ := j.out.find(`process \d leaves`); len(ended) != 1 || fmt.Sprint(j.worlds()) != "[2]" {
		t.Errorf("%d ranks left, then there were worlds of %v\n%s", len(ended), j.worlds(), j.out)
	}
}

// TestOthersThanAnnounced: ranks leave a world because slots were withdrawn, and the next one has a rank that is new all the
// same, for one of them has died on its way, or another slot was offered meanwhile. It is given what the others have.
func TestOthersThanAnnounced(t *testing.T) {
	for name, tc := range map[string]struct {
		args  []string
		then  func(j *training, list *hostFile)
		fresh string
		ranks int
	}{
		"one dies": {[]string{"--on-failure", "wait", "--blacklist-cooldown-range", "1", "2"},
			func(j *training, _ *hostFile) { j.killProcess(1) }, `process 3 is rank 1 of 2`, 2},
		"a slot is offered": {nil, func(_ *training, list *hostFile) { list.say("host1:4") }, `process [3-9] is rank 3 of 4`, 4},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			list := c.hostFile("host1:3")
			hold := filepath.Join(c.shared("hold"), "over")
			args := append(tc.args, "-np", "3", "--min-np", "1", "--host-discovery-script", "cat "+list.name)
			j := c.count([]string{"--hold", "1@" + hold}, args...)
			j.await(`commit 10 epoch 1 size 3`)
			list.say("host1:2")
			j.await(`process 1 takes its time to leave`)
			tc.then(j, list)
			time.Sleep(2 * time.Second) // discovery looks every second
			if err := os.WriteFile(hold, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			j.await(tc.fresh + ` from step [1-9]\d`)
			j.counted(tc.ranks)
		})
	}
}

// TestOwnMachineFirst: a job that begins on gorun's own machine alone takes in hosts elsewhere that are discovered later, by
// whatever name that machine is called, and even if it had no network then.
func TestOwnMachineFirst(t *testing.T) {
	for name, own := range map[string]string{"localhost": "localhost", "launcher": "launcher", "unplugged": "localhost"} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			list := c.hostFile(own + ":1")
			network := func(change func() error) {
				if name != "unplugged" {
					return
				}
				if err := change(); err != nil {
					t.Fatal(err)
				}
			}
			network(c.Launcher().Unplug)
			j := c.count(nil, "--min-np", "1", "--host-discovery-script", "cat "+list.name)
			j.await(`commit 10 epoch 1 size 1`)
			network(c.Launcher().Plug)
			list.say(own+":1", "host1:1", "host2:1")
			j.await(`process 0 is rank 0 of 3 from step [1-9]\d`)
			list.say("host1:1", "host2:1")
			j.await(`process [12] is rank 0 of 2 from step [1-9]\d`)
			j.counted(2)
		})
	}
}
