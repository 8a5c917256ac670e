//go:build linux

package main

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/lab"
)

// sleeping starts a job of one rank on each of two hosts, which sleep for a time that tells them from others.
func (c *cluster) sleeping(seconds string, args ...string) *training {
	c.t.Helper()
	j := c.follow(append(args, "-np", "2", "--lease", "5", "--verbose", "-H", "host1:1,host2:1", "sh", "-c", "echo up; sleep "+seconds)...)
	c.await("world and ranks", func() bool {
		up, _ := j.out.find(`:up$`)
		return len(up) == 2 && j.out.has(`gorun: epoch 1, ring: `)
	})
	return j
}

// left is on how many hosts a program runs.
func (c *cluster) left(args string) (n int) {
	for _, h := range c.Hosts() {
		for _, p := range h.Processes() {
			if p.Args == args {
				n++
			}
		}
	}
	return n
}

// TestLauncherPower: the machine of some launchers loses its power, as far as their hosts can know. The ranks of those that are gone end
// half a minute later, so do those of launchers that were only cut off, which say so themselves then; those of one that was
// stopped by Ctrl-Z wait for it.
func TestLauncherPower(t *testing.T) {
	c := newCluster(t, 2)
	gone, fixed, elastic, stopped := c.sleeping("1001"), c.sleeping("1002"), c.sleeping("1003", "--min-np", "1"), c.sleeping("1004")
	stopped.must(stopped.cmd.Process.Signal(syscall.SIGTSTP))
	c.await("stop of the launcher", func() bool {
		return slices.ContainsFunc(c.Launcher().Processes(), func(p lab.Process) bool { return p.PID == stopped.cmd.Process.Pid && p.State == 'T' })
	})
	gone.must(c.Launcher().Cut())
	gone.must(gone.cmd.Process.Kill()) // what its kernel says of that nobody hears
	struck := time.Now()
	gone.cmd.Wait()
	time.Sleep(time.Until(struck.Add(22 * time.Second))) // they may be back; what is left of the half minute is for a busy machine
	for _, ranks := range []string{"sleep 1001", "sleep 1002", "sleep 1003", "sleep 1004"} {
		if n := c.left(ranks); n != 2 {
			t.Errorf("%q runs on %d hosts after %v, want 2", ranks, n, time.Since(struck).Round(time.Second))
		}
	}
	c.await("end of the ranks", func() bool { return c.left("sleep 1001")+c.left("sleep 1002")+c.left("sleep 1003") == 0 })
	t.Logf("the ranks without a launcher ended after %v", time.Since(struck).Round(time.Millisecond))
	const alone = `this machine has heard none of its 2 hosts since \d\d:\d\d:\d\d, and without it they end the job after 30s`
	for _, j := range []*training{fixed, elastic} {
		j.idle = func() {}
		j.fails(255, alone, `look at the network of this machine; with a longer --lease hosts wait longer for it`)
		if errors, _ := j.out.find(`(error|lost|epoch 2|has been silent)`); len(errors) != 1 {
			t.Errorf("there is more to be read than one error\n%s", j.out)
		}
	}
	t.Logf("their launchers ended after %v", time.Since(struck).Round(time.Millisecond))
	if n := c.left("sleep 1004"); n != 2 {
		t.Errorf("%d ranks of the launcher that was stopped are left, want 2", n)
	}
	stopped.must(c.Launcher().Heal())
	stopped.must(stopped.cmd.Process.Signal(syscall.SIGCONT))
	stopped.must(stopped.cmd.Process.Signal(syscall.SIGTERM))
	if stopped.cmd.Wait(); !stopped.out.has(`stopped by SIGTERM`) {
		t.Errorf("the launcher did not go on\n%s", stopped.out)
	}
	c.expectLeft(5*time.Second, "sshd: ") // which hear of the end of connections from TCP, a quarter of an hour later
}

// TestLauncherCut: a launcher is cut off from all of its hosts, for longer than their lease. That is told in one line. They hear each
// other and train on, none is blamed, no other world begins, and it finds them again.
func TestLauncherCut(t *testing.T) {
	needTorch(t)
	c := newCluster(t, 3)
	fixed := c.count(nil, "--lease", "5", "-np", "3", "-H", "host1:1,host2:1,host3:1")
	elastic := c.count(nil, "--lease", "5", "-np", "3", "--min-np", "1", "-H", "host1:1,host2:1,host3:1")
	fixed.await(`commit 10 epoch 1 size 3`)
	elastic.await(`commit 10 epoch 1 size 3`)
	fixed.must(c.Launcher().Cut())
	time.Sleep(18 * time.Second) // this is what is tested
	fixed.must(c.Launcher().Heal())
	for _, j := range []*training{fixed, elastic} {
		j.await(`gorun: host3 is back after \d+ s`)
		j.idle = func() {} // the other one is there
		j.counted(3)
		told, _ := j.out.find(`gorun: this machine hears none of its 3 hosts since \d\d:\d\d:\d\d: look at its own network; the job goes on there until \d\d:\d\d:\d\d$`)
		if blamed, _ := j.out.find(`(has been silent|is lost|epoch [2-9])`); len(told) != 1 || len(blamed) > 0 {
			t.Errorf("want one line of the launcher's network, and no other\n%s", j.out)
		}
	}
	c.expectNothingLeft(5 * time.Second)
}

// TestLauncherStopped: launchers are stopped by a signal that they cannot see, for longer than their hosts wait for one. All of them say that
// when they go on, whichever consequence of it reaches them first.
func TestLauncherStopped(t *testing.T) {
	c := newCluster(t, 2)
	flags := map[string][]string{
		"sleeping":   {"sh", "-c", "echo busy; sleep 1000"},
		"fixed":      {python, "-c", busy},
		"the same":   {python, "-c", busy},
		"elastic":    {"--min-np", "2", python, "-c", busy},
		"system ssh": {"--ssh-command", "ssh", python, "-c", busy},
	}
	jobs := map[string]*training{}
	for name, more := range flags {
		jobs[name] = c.follow(append([]string{"--lease", "5", "-H", "host1:1,host2:1"}, more...)...)
	}
	for name, j := range jobs {
		t.Cleanup(func() { // whatever comes
			if j.cmd.Process.Kill() == nil {
				t.Logf("%s:\n%s", name, j.out)
				j.cmd.Wait()
			}
		})
		c.await("ranks", func() bool { up, _ := j.out.find(`:busy$`); return len(up) == 2 })
	}
	for _, j := range jobs {
		j.must(j.cmd.Process.Signal(syscall.SIGSTOP))
	}
	time.Sleep(45 * time.Second) // this is what is tested
	for name, j := range jobs {
		t.Run(name, func(t *testing.T) {
			j.t = t
			j.must(j.cmd.Process.Signal(syscall.SIGCONT))
			j.idle = func() {}
			j.fails(255, `gorun, or this machine, was stopped for \d+ s, and without it its 2 hosts end the job after 30s`, `with a longer --lease hosts wait longer; Ctrl-Z `)
			if errors, _ := j.out.find(`(gorun: error|lost|epoch 2|has been silent)`); len(errors) != 1 {
				t.Errorf("there is more to be read than one error\n%s", j.out)
			}
		})
	}
	c.expectNothingLeft(5 * time.Second)
}
