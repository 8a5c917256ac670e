package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

func sleepers(c *e2etest.Cluster, h *lab.LabHost) (n int) {
	for _, p := range h.Processes() {
		if p.Args == "sleep 1000" {
			n++
		}
	}
	return n
}

// TestKillPrograms kills -9, one after the other, the programs at work beside a launcher that lives: the user's ssh and
// ProxyCommand, the script that lists hosts, the command that announces moves, the guards of those two, and on hosts
// what leads a connection to its daemon. The job goes on, and at its end nothing is left of any of them. host1 tells host2
// that the launcher lives, as a login may take longer on a busy machine than a host waits by itself.
func TestKillPrograms(t *testing.T) {
	c := e2etest.NewSSHCluster(t, 2)
	relay := c.Write("relay.py", strings.ReplaceAll(e2etest.DeafRelay, "time.sleep(1000)", ""), 0o600)
	for name, test := range map[string]struct {
		way     []string
		program string // that carries the connection, on the launcher's host
	}{
		"ProxyCommand": {[]string{"--ssh-config", c.Config("proxy", "Host host2\n ProxyCommand "+e2etest.Python+" "+relay+" %h 22\n")}, "relay.py"},
		"ssh-command":  {[]string{"--ssh-command", "ssh -F " + c.Config("direct", "")}, "host2 exec"},
	} {
		t.Run(name, func(t *testing.T) {
			file := func(what string) string { return filepath.Join(c.Dir, name+"-"+what) }
			// The second list and the first announcements take their time, and have children that take it as well.
			const slow = "{ sleep 1000 & sleep 1000; }"
			script := c.Write(name+"-hosts", "echo x >>"+file("runs")+"; [ $(wc -l <"+file("runs")+") -ne 2 ] || "+slow+"; echo host1:1; echo host2:1\n", 0o600)
			moves := c.Write(name+"-moves", "echo x >>"+file("moved")+"; [ $(wc -l <"+file("moved")+") -ne 1 ] || "+slow+"; exec sleep 1000\n", 0o600)
			runs := func(what string) int { text, _ := os.ReadFile(file(what)); return len(text) / 2 }
			cmd, stdout, stderr := c.Command(append(test.way, "--min-np", "2", "--no-tag-output", "--host-discovery-script", "sh "+script,
				"--moves", "sh "+moves, "sh", "-c", "echo up; until [ -e "+file("done")+" ]; do sleep 0.1; done; echo end")...)
			must.Do(t, cmd.Start())
			c.Await("ranks and programs", func() bool { return stdout.Count("up") == 2 && runs("runs") == 2 && runs("moved") == 1 })

			c.Slay(cmd, c.Launcher(), test.program)
			c.Slay(cmd, c.Host(2), "worker --relay")
			c.Slay(cmd, c.Launcher(), "sh "+script)
			c.Await("next list", func() bool { return runs("runs") > 3 })
			if n := sleepers(c.Cluster, c.Launcher()); n != 2 {
				t.Errorf("%d processes sleep on the launcher's host, want two of the command that announces moves", n)
			}
			c.Slay(cmd, c.Launcher(), "sh "+moves)
			c.Await("next announcements", func() bool { return runs("moved") == 2 })
			c.Slay(cmd, c.Launcher(), "read line; kill -KILL 0")
			c.Slay(cmd, c.Host(2), "worker --relay")

			must.Do(t, os.WriteFile(file("done"), nil, 0o600))
			err := cmd.Wait()
			if err != nil || stdout.Count("up") != 2 || stdout.Count("end") != 2 {
				t.Errorf("%v\n%s\n%s", err, stdout, stderr)
			}
			c.ExpectNothingLeft(5 * time.Second)
		})
	}
}

// slayJob kills -9 launcher, supervisor and daemon of a job on one host.
func slayJob(c *e2etest.Cluster, launcher *lab.Cmd, h *lab.LabHost, mine func(pid int) bool) {
	c.T.Helper()
	victims := []int{launcher.Process.Pid}
	for _, p := range h.Processes() {
		if strings.Contains(p.Args, "gorun worker") && mine(p.PID) {
			victims = append(victims, p.PID)
		}
	}
	killAtOnce(c, launcher, victims)
}

// killAtOnce kills -9 a launcher, a supervisor and a daemon so that none of them sees another go.
func killAtOnce(c *e2etest.Cluster, launcher *lab.Cmd, victims []int) {
	c.T.Helper()
	if len(victims) != 3 {
		c.T.Fatalf("found %d of launcher, supervisor and daemon", len(victims))
	}
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range victims {
			must.Do(c.T, syscall.Kill(pid, sig))
		}
	}
	launcher.Wait()
}

// TestNextJobSweeps: if launcher, supervisor and daemon are killed in the same instant, what ranks have started is left. It
// ends with the next job's start on that host, also children in a rank's own process group, and what another job has, or the user without a job, stays.
func TestNextJobSweeps(t *testing.T) {
	c := e2etest.NewCluster(t, 1)
	h := c.Host(1)
	begin := func(name string, spare func(pid int) bool) (*lab.Cmd, []int) {
		cmd, stdout, _ := c.Command("-np", "2", "-H", "host1:2", "sh", "-c",
			"env -i setsid sleep 1000 & setsid sleep 1000 & sleep 1000 & (sleep 1000 <&- >&- 2>&- &); echo up; wait")
		must.Do(t, cmd.Start())
		var pids []int
		c.Await("sleepers of the "+name, func() bool {
			pids = nil
			for _, p := range h.Processes() {
				if p.Args == "sleep 1000" && !spare(p.PID) {
					pids = append(pids, p.PID)
				}
			}
			return stdout.Count("up") == 2 && len(pids) == 8
		})
		return cmd, pids
	}
	first, doomed := begin("first job", func(int) bool { return false })
	own := map[int]bool{}
	var ranks []int
	for _, p := range h.Processes() {
		own[p.PID] = true
		if strings.HasPrefix(p.Args, "sh -c env -i") {
			ranks = append(ranks, p.PID)
		}
	}
	other, kept := begin("other job", func(pid int) bool { return own[pid] })
	// What another scheduler starts for a rank has its environment, and is none of the job's.
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", doomed[0]))
	for _, pid := range doomed[1:] {
		if !strings.Contains(string(environ), "GORUN_JOB=") {
			environ, err = os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		}
	}
	if err != nil || !strings.Contains(string(environ), "GORUN_JOB=") {
		t.Fatalf("no environment of the job: %v", err)
	}
	batch := h.Command(t.Context(), "sleep", "1000")
	batch.Env = append(batch.Env, strings.Split(strings.TrimRight(string(environ), "\x00"), "\x00")...)
	must.Do(t, batch.Start())
	kept = append(kept, batch.Process.Pid)
	living := func(pids []int) (n int) {
		for _, p := range h.Processes() {
			if slices.Contains(pids, p.PID) {
				n++
			}
		}
		return n
	}

	slayJob(c, first, h, func(pid int) bool { return own[pid] })
	c.Await("end of the ranks", func() bool { return living(ranks) == 0 })
	if n := living(doomed); n != 8 {
		t.Errorf("%d sleepers are left, want 8: or there is nothing to sweep", n)
	}
	if cmd, _, stderr := c.Command("-H", "host1", "true"); cmd.Run() != nil {
		t.Errorf("the next job: %s", stderr)
	}
	c.Await("end of all that the dead job had", func() bool { return living(doomed) == 0 }) // the launcher may end before the supervisor
	if n := living(kept); n != 9 {
		t.Errorf("%d of 9 are left of another job and of none", n)
	}
	other.Process.Signal(syscall.SIGTERM)
	other.Wait()
	batch.Process.Kill()
	batch.Wait()
	c.ExpectNothingLeft(5 * time.Second)
}

// TestClusterSweeps: a host of a cluster waits for no next job: the supervisor of the daemon that takes the dead one's place
// ends what is left.
func TestClusterSweeps(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	h := s.Host(1)
	cmd, stdout, _ := s.Command(append(slices.Clone(s.Args), "-np", "2", "sh", "-c", "env -i setsid sleep 1000 & sleep 1000 & echo up; wait")...)
	must.Do(t, cmd.Start())
	s.Await("sleepers", func() bool { return stdout.Count("up") == 2 && sleepers(s.Cluster, h) == 4 })
	victims := []int{cmd.Process.Pid}
	for _, p := range h.Processes() {
		if strings.HasSuffix(p.Args, "worker --daemon --resumable busy") {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
			_, parent, ok := strings.Cut(string(status), "PPid:")
			supervisor, _ := strconv.Atoi(strings.Fields(parent)[0])
			if err != nil || !ok || supervisor <= 1 {
				t.Fatalf("no supervisor: %v\n%s", err, status)
			}
			victims = append(victims, supervisor, p.PID)
		}
	}
	killAtOnce(s.Cluster, cmd, victims)
	s.Await("end of what is left", func() bool { return sleepers(s.Cluster, h) == 0 })
}
