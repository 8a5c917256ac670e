package proc_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/worker/proc"
)

// killBoth kills guardian and daemon so that neither sees the other go, and waits until the daemon is no more: as long as
// it is, it holds the lock on its control group.
func (g *guarded) killBoth(t *testing.T) {
	t.Helper()
	g.cmd.Process.Signal(syscall.SIGSTOP)
	syscall.Kill(g.daemon, syscall.SIGKILL)
	g.cmd.Process.Kill()
	eventually(t, "the end of the daemon", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.daemon))
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", g.daemon)) // the first one may end before the others
		return err != nil || strings.Contains(string(stat), ") Z ") && len(threads) <= 1
	})
}

// TestSweep: what is detached from its rank outlives guardian and daemon if they are killed at once, until somebody
// sweeps: also what has a session of its own, an empty environment, no descriptors of the rank and no parent.
func TestSweep(t *testing.T) {
	n := nap()
	mark := fmt.Sprintf("sleep\x00%d", n)
	g := startGuarded(t, fmt.Sprintf("setsid sleep %[1]d & (setsid sh -c 'sleep %[1]d & exit' &); (env -i setsid sh -c 'PATH=/usr/bin:/bin; (sleep %[1]d <&- >&- 2>&- &) ; exit' &); wait; sleep 1000", n))
	eventually(t, "3 sleepers", func() bool { return len(carrying(mark)) == 3 })
	g.killBoth(t)
	if code := g.code(t); code != -1 {
		t.Errorf("exit code %d", code)
	}
	if left := len(carrying(mark)); left != 3 {
		t.Errorf("%d sleepers are left, want all: or there is nothing to sweep", left)
	}
	if err := proc.Sweep(g.job); err != nil {
		t.Error(err)
	}
	if left := append(carrying(g.job), carrying(mark)...); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// TestSweepCgroup: a control group knows its own whatever they did to be forgotten.
func TestSweepCgroup(t *testing.T) {
	n := nap()
	mark := fmt.Sprintf("sleep\x00%d", n)
	g := startGuarded(t, fmt.Sprintf(detach, n)+"wait; sleep 1000")
	eventually(t, "4 sleepers", func() bool { return len(carrying(mark)) == 4 })
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", g.rank))
	if err != nil {
		t.Fatal(err)
	}
	caged := strings.Contains(string(text), "/gorun-job-")
	g.killBoth(t)
	g.code(t)
	err = proc.Sweep(g.job)
	left := carrying(mark)
	for _, pid := range left {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	if !caged {
		if dir, err := makeCgroup(); err == nil {
			t.Fatalf("the ranks are in\n%s, but a group can be made: %s", text, dir)
		}
		t.Skip("this user may not make control groups of version 2 here")
	}
	if err != nil || len(left) > 0 {
		t.Errorf("%v are left: %v", left, err)
	}
}

// makeCgroup makes a control group below that of this process and removes it, whatever the package under test thinks of
// that.
func makeCgroup() (string, error) {
	own, err := exec.Command("sed", "-n", "s,^0::/,,p", "/proc/self/cgroup").Output()
	if err != nil {
		return "", err
	}
	mount, err := exec.Command("findmnt", "-nfo", "TARGET", "-t", "cgroup2").Output()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(strings.TrimSpace(string(mount)), strings.TrimSpace(string(own)), fmt.Sprintf("probe-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return dir, os.Remove(dir)
}

// TestSweepSpares: who has a daemon is not swept, though it be of the same job, nor is another job.
func TestSweepSpares(t *testing.T) {
	job := fmt.Sprintf("sparetest-%d", os.Getpid())
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/worker", []byte("GORUN_JOB="+job+" GORUN_PROCESS=0 sleep 1000 & read _; kill $!; wait"), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := &exec.Cmd{Path: "/bin/sh", Args: []string{proc.DaemonName, "worker", "--daemon"}, Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")}}
	other := exec.Command("sleep", "1000")
	other.Env = []string{"GORUN_JOB=" + job + "-other", "GORUN_PROCESS=0"}
	orphan := exec.Command("sleep", "1000")
	orphan.Env = []string{"GORUN_JOB=" + job, "GORUN_PROCESS=0"}
	in, err := daemon.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{daemon, other, orphan} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		in.Close()
		other.Process.Kill()
		orphan.Process.Kill()
		other.Wait()
		daemon.Wait()
	}()
	eventually(t, "the daemon's rank", func() bool { return len(carrying("GORUN_JOB="+job+"\x00")) == 2 })
	if err := proc.Sweep(job); err != nil {
		t.Error(err)
	}
	orphan.Wait()
	if n := len(carrying("GORUN_JOB=" + job)); n != 2 {
		t.Errorf("%d processes carry the mark of this job with a daemon, and of another; want 2", n)
	}
}

// TestBrand: what a job has started is known without a control group, a session, an environment or descriptors of the
// job's, and only until the job is closed.
func TestBrand(t *testing.T) {
	job := fmt.Sprintf("brandtest-%d", os.Getpid())
	g, err := proc.Open(proc.Config{Job: job})
	if err != nil {
		t.Fatal(err)
	}
	sleeper := func() *exec.Cmd {
		cmd := exec.Command("setsid", "sleep", "1000")
		cmd.Env = []string{}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	inside := sleeper()
	if err := proc.Sweep(job + "-other"); err != nil || syscall.Kill(inside.Process.Pid, 0) != nil {
		t.Errorf("the sweep of another job: %v, or it ended this one's", err)
	}
	if err := proc.Sweep(job); err != nil {
		t.Error(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- inside.Wait() }()
	select {
	case err := <-ended:
		if err == nil { // the group may have reaped it first, so its status is not always ours
			t.Error("it slept well")
		}
	case <-time.After(20 * time.Second):
		t.Error("it was not found")
		inside.Process.Kill()
		<-ended
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	outside := sleeper()
	if err := proc.Sweep(job); err != nil || outside.ProcessState != nil || syscall.Kill(outside.Process.Pid, syscall.SIGTERM) != nil {
		t.Errorf("swept: %v", err)
	}
	if err := outside.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("what began later ended with %v", err)
	}
}
