package faults

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
)

// sleeping starts a job of one rank on each of two hosts, which sleep for a time of their own, by which ps finds them.
func sleeping(c *e2etest.Cluster, seconds string, args ...string) *e2etest.Training {
	c.T.Helper()
	j := c.Follow(append(args, "-np", "2", "--lease", "5", "--verbose", "-H", "host1:1,host2:1", "sh", "-c", "echo up; sleep "+seconds)...)
	c.Await("world and ranks", func() bool {
		up, _ := j.Out.Find(`:up$`)
		return len(up) == 2 && j.Out.Has(`gorun: epoch 1, ring: `)
	})
	return j
}

// left is on how many hosts a program runs.
func left(c *e2etest.Cluster, args string) (n int) {
	for _, h := range c.Hosts() {
		for _, p := range h.Processes() {
			if p.Args == args {
				n++
			}
		}
	}
	return n
}

// TestLauncherPower: the machine of some launchers loses its power, as far as their hosts can know. The ranks of those
// that are gone end half a minute later, so do those of launchers that were only cut off, which report it themselves
// then; those of one that was stopped by Ctrl-Z wait for it.
func TestLauncherPower(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	gone, fixed, elastic, stopped := sleeping(c, "1001"), sleeping(c, "1002"), sleeping(c, "1003", "--min-np", "1"), sleeping(c, "1004")
	stopped.Must(stopped.Cmd.Process.Signal(syscall.SIGTSTP))
	c.Await("stop of the launcher", func() bool {
		return slices.ContainsFunc(c.Launcher().Processes(), func(p lab.Process) bool { return p.PID == stopped.Cmd.Process.Pid && p.State == 'T' })
	})
	gone.Must(c.Launcher().Cut())
	gone.Must(gone.Cmd.Process.Kill()) // no one hears what its kernel sends
	struck := time.Now()
	gone.Cmd.Wait()
	time.Sleep(time.Until(struck.Add(22 * time.Second))) // they may be back; what is left of the half minute is for a busy machine
	for _, ranks := range []string{"sleep 1001", "sleep 1002", "sleep 1003", "sleep 1004"} {
		if n := left(c, ranks); n != 2 {
			t.Errorf("%q runs on %d hosts after %v, want 2", ranks, n, time.Since(struck).Round(time.Second))
		}
	}
	c.Await("end of the ranks", func() bool { return left(c, "sleep 1001")+left(c, "sleep 1002")+left(c, "sleep 1003") == 0 })
	t.Logf("the ranks without a launcher ended after %v", time.Since(struck).Round(time.Millisecond))
	const alone = `this machine has heard from none of its 2 hosts since \d\d:\d\d:\d\d; without it they end the job after 30s`
	for _, j := range []*e2etest.Training{fixed, elastic} {
		j.Idle = func() {}
		j.Fails(255, alone, `look at the network of this machine; with a longer --lease hosts wait longer for it`)
		if errors, _ := j.Out.Find(`(error|lost|epoch 2|has been silent)`); len(errors) != 1 {
			t.Errorf("there is more to be read than one error\n%s", j.Out)
		}
	}
	t.Logf("their launchers ended after %v", time.Since(struck).Round(time.Millisecond))
	if n := left(c, "sleep 1004"); n != 2 {
		t.Errorf("%d ranks of the launcher that was stopped are left, want 2", n)
	}
	stopped.Must(c.Launcher().Heal())
	stopped.Must(stopped.Cmd.Process.Signal(syscall.SIGCONT))
	stopped.Must(stopped.Cmd.Process.Signal(syscall.SIGTERM))
	if stopped.Cmd.Wait(); !stopped.Out.Has(`stopped by SIGTERM`) {
		t.Errorf("the launcher did not go on\n%s", stopped.Out)
	}
	c.ExpectLeft(5*time.Second, "sshd: ") // which hear of the end of connections from TCP, a quarter of an hour later
}

// TestLauncherCut: a launcher is cut off from all of its hosts, for longer than their lease. One line reports that.
// They hear each other and train on, none is blamed, no other world begins, and it finds them again.
func TestLauncherCut(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	fixed := c.Count(nil, "--lease", "5", "-np", "3", "-H", "host1:1,host2:1,host3:1")
	elastic := c.Count(nil, "--lease", "5", "-np", "3", "--min-np", "1", "-H", "host1:1,host2:1,host3:1")
	fixed.Await(`commit 10 epoch 1 size 3`)
	elastic.Await(`commit 10 epoch 1 size 3`)
	fixed.Must(c.Launcher().Cut())
	time.Sleep(18 * time.Second) // this is what is tested
	fixed.Must(c.Launcher().Heal())
	for _, j := range []*e2etest.Training{fixed, elastic} {
		j.Await(`gorun: host3 is back after \d+ s`)
		j.Idle = func() {} // the other one is there
		j.Counted(3)
		told, _ := j.Out.Find(`gorun: this machine has heard from none of its 3 hosts since \d\d:\d\d:\d\d: look at its own network; the job goes on there until \d\d:\d\d:\d\d$`)
		if blamed, _ := j.Out.Find(`(has been silent|is lost|epoch [2-9])`); len(told) != 1 || len(blamed) > 0 {
			t.Errorf("want one line of the launcher's network, and no other\n%s", j.Out)
		}
	}
	c.ExpectNothingLeft(5 * time.Second)
}

// TestLauncherStopped: launchers are stopped by a signal that they cannot see, for longer than their hosts wait for
// one. All of them report that when they go on, whichever consequence of it reaches them first.
func TestLauncherStopped(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	c.Hurry(0.4)
	flags := map[string][]string{
		"sleeping":   {"sh", "-c", "echo busy; sleep 1000"},
		"fixed":      {e2etest.Python, "-c", e2etest.Busy},
		"elastic":    {"--min-np", "2", e2etest.Python, "-c", e2etest.Busy},
		"system ssh": {"--ssh-command", "ssh", e2etest.Python, "-c", e2etest.Busy},
	}
	jobs := map[string]*e2etest.Training{}
	for name, more := range flags {
		jobs[name] = c.Follow(append([]string{"--lease", "5", "-H", "host1:1,host2:1"}, more...)...)
	}
	for name, j := range jobs {
		t.Cleanup(func() { // whatever comes
			if j.Cmd.Process.Kill() == nil {
				t.Logf("%s:\n%s", name, j.Out)
				j.Cmd.Wait()
			}
		})
		c.Await("ranks", func() bool { up, _ := j.Out.Find(`:busy$`); return len(up) == 2 })
	}
	for _, j := range jobs {
		j.Must(j.Cmd.Process.Signal(syscall.SIGSTOP))
	}
	time.Sleep(c.Scaled(45 * time.Second)) // this is what is tested
	for name, j := range jobs {
		t.Run(name, func(t *testing.T) {
			j.T = t
			j.Must(j.Cmd.Process.Signal(syscall.SIGCONT))
			j.Idle = func() {}
			j.Fails(255, fmt.Sprintf(`gorun, or this machine, was stopped for \d+ s; without it its 2 hosts end the job after %v`, c.Scaled(30*time.Second)), `with a longer --lease hosts wait longer; Ctrl-Z `)
			if errors, _ := j.Out.Find(`(gorun: error|lost|epoch 2|has been silent)`); len(errors) != 1 {
				t.Errorf("there is more to be read than one error\n%s", j.Out)
			}
		})
	}
	c.ExpectNothingLeft(5 * time.Second)
}
