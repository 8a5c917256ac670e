package faults

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// victims names one process or several, which are killed in the same instant.
type victims func(c *e2etest.Cluster, gorun int) []int

// the returns a process of a host of which the command line begins so, the nth of them.
func the(host int, begin string, nth int) victims {
	return func(c *e2etest.Cluster, _ int) []int {
		for _, p := range c.Host(host).Processes() {
			if p.Inner == 1 || !strings.HasPrefix(p.Args, begin) {
				continue
			}
			if nth == 0 {
				return []int{p.PID}
			}
			nth--
		}
		return nil
	}
}

func both(one, other victims) victims {
	return func(c *e2etest.Cluster, gorun int) []int { return append(one(c, gorun), other(c, gorun)...) }
}

// TestKillAnything kills -9 each kind of process in the middle of a job. Soon nothing may be left of it on any host.
func TestKillAnything(t *testing.T) {
	t.Parallel()
	supervisor, daemon := regexp.MustCompile(`gorun worker --session \w+$`), "gorun worker --daemon"
	theSupervisor := func(host int) victims {
		return func(c *e2etest.Cluster, _ int) []int {
			for _, p := range c.Host(host).Processes() {
				if supervisor.MatchString(p.Args) {
					return []int{p.PID}
				}
			}
			return nil
		}
	}
	for name, test := range map[string]struct {
		victims victims
		code    int
		says    string
	}{
		"launcher":   {func(_ *e2etest.Cluster, gorun int) []int { return []int{gorun} }, -1, ""},
		"supervisor": {theSupervisor(1), 255, "gorun: error: host1: run: the supervisor of the daemon was killed"},
		"daemon":     {the(2, daemon, 0), 255, "gorun: error: host2: run: the daemon was killed by signal 9"},
		"rank":       {the(2, e2etest.Python, 0), 137, "on host2 was killed by signal 9 (SIGKILL)"},
		// No one is left on the host who would know what the ranks have detached.
		"supervisor and daemon": {both(theSupervisor(2), the(2, daemon, 0)), 255, "gorun: error: host2: run: the daemon ended: its supervisor was killed by signal 9"},
	} {
		t.Run(name, func(t *testing.T) {
			c := e2etest.NewCluster(t, 2)
			// Something that has neither the session, a parent nor the environment of the job.
			script := `import subprocess; subprocess.run(["sh", "-c", "env -i setsid sleep 1000 & exit 0"])` + e2etest.Busy
			cmd, _, stderr := c.Begin(2, "busy", "-np", "2", "-H", "host1,host2", e2etest.Python, "-c", script)
			pids := test.victims(c, cmd.Process.Pid)
			if len(pids) == 0 {
				t.Fatalf("no such process on\n%v\n%v", c.Host(1).Processes(), c.Host(2).Processes())
			}
			ended := make(chan struct{})
			go func() { cmd.Wait(); close(ended) }()
			if len(pids) > 1 { // or one of them may see the other go
				for _, pid := range pids {
					syscall.Kill(pid, syscall.SIGSTOP)
				}
			}
			for _, pid := range pids {
				must.Do(t, syscall.Kill(pid, syscall.SIGKILL))
			}
			c.ExpectNothingLeft(10 * time.Second)
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				t.Fatal("gorun is still there")
			}
			if code := cmd.ProcessState.ExitCode(); code != test.code || !strings.Contains(stderr.String(), test.says) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, test.code, test.says, stderr)
			}
		})
	}
}

// TestKillLauncherAtStart kills -9 a launcher whose ranks run and are in no world yet: the hosts have not met. The daemon
// on its own machine ends at once, and the other one must not wait for that one's word.
func TestKillLauncherAtStart(t *testing.T) {
	c := e2etest.NewCluster(t, 1)
	cmd, _, stderr := c.Begin(2, "up", "-np", "2", "-H", "localhost:1,host1:1", "sh", "-c", "echo up; exec sleep 1000")
	must.Do(t, cmd.Process.Kill())
	cmd.Wait()
	if c.ExpectNothingLeft(10 * time.Second); t.Failed() {
		t.Logf("it had said:\n%s", stderr)
	}
}

// TestPowerOff: a host that falls silent is noticed by its peers, and the job ends with its name.
func TestPowerOff(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	c.Hurry(0.2)
	cmd, _, stderr := c.Begin(2, "busy", "-np", "2", "-H", "host1,host2", e2etest.Python, "-c", e2etest.Busy)
	must.Do(t, c.Host(2).PowerOff())
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(60 * time.Second):
		t.Fatal("gorun still waits for a host without power")
	}
	if code := cmd.ProcessState.ExitCode(); code != 255 || !strings.Contains(stderr.String(), fmt.Sprintf("gorun: error: host2: run: silent for %v, as host1 reports", c.Scaled(30*time.Second))) {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	c.ExpectNothingLeft(5 * time.Second)
}
