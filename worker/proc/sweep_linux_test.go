package proc_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gorun/contrib/must"
	"gorun/worker/proc"
)

// killBoth kills supervisor and daemon so that neither sees the other go, and waits until the daemon is no more.
func (g *guarded) killBoth(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { // this process has adopted what they had, if an earlier test held a group
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	})
	g.cmd.Process.Signal(syscall.SIGSTOP)
	syscall.Kill(g.daemon, syscall.SIGKILL)
	g.cmd.Process.Kill()
	must.Soon(t, "the end of the daemon", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.daemon))
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", g.daemon)) // the first one may end before the others
		return err != nil || strings.Contains(string(stat), ") Z ") && len(threads) <= 1
	})
}

// TestSweep: what is detached from its rank outlives supervisor and daemon if they are killed at once, until someone
// sweeps: also what has a session of its own, an empty environment, no descriptors of the rank and no parent.
func TestSweep(t *testing.T) {
	n := nap()
	mark := fmt.Sprintf("sleep\x00%d", n)
	g := startGuarded(t, fmt.Sprintf("setsid sleep %[1]d & (setsid sh -c 'sleep %[1]d & exit' &); (env -i setsid sh -c 'PATH=/usr/bin:/bin; (sleep %[1]d <&- >&- 2>&- &) ; exit' &); wait; sleep 1000", n))
	must.Soon(t, "3 sleepers", func() bool { return len(carrying(mark)) == 3 })
	g.killBoth(t)
	g.ends(t, -1)
	if left := len(carrying(mark)); left != 3 {
		t.Logf("%d of 3 sleepers are left: a supervisor of this machine was faster", left)
	}
	must.Do(t, proc.Sweep(g.job))
	if left := append(carrying(g.job), carrying(mark)...); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// TestSweepSpares: who has a daemon is not swept, though it be of the same job, nor is another job.
func TestSweepSpares(t *testing.T) {
	job := fmt.Sprintf("sparetest-%d", os.Getpid())
	dir := t.TempDir()
	must.Do(t, os.WriteFile(dir+"/worker", []byte("GORUN_JOB="+job+" GORUN_PROCESS=0 sleep 1000 & read _; kill $!; wait"), 0o600))
	daemon := &exec.Cmd{Path: "/bin/sh", Args: []string{proc.DaemonName, "worker", "--daemon"}, Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")}}
	other := exec.Command("sleep", "1000")
	other.Env = []string{"GORUN_JOB=" + job + "-other", "GORUN_PROCESS=0"}
	orphan := exec.Command("sleep", "1000")
	orphan.Env = []string{"GORUN_JOB=" + job, "GORUN_PROCESS=0"}
	in, err := daemon.StdinPipe()
	must.Do(t, err)
	for _, cmd := range []*exec.Cmd{daemon, other, orphan} {
		must.Do(t, cmd.Start())
	}
	defer func() {
		in.Close()
		other.Process.Kill()
		orphan.Process.Kill()
		other.Wait()
		daemon.Wait()
	}()
	must.Soon(t, "the daemon's rank", func() bool { return len(carrying("GORUN_JOB="+job+"\x00")) == 2 })
	must.Do(t, proc.Sweep(job))
	orphan.Wait()
	if n := len(carrying("GORUN_JOB=" + job)); n != 2 {
		t.Errorf("%d processes carry the mark of this job with a daemon, and of another; want 2", n)
	}
}

// TestBrand: what a daemon that lives has started is left alone, whichever job is swept, without a session, an environment or
// descriptors of the job's; and what it starts after its job is none of the job's.
func TestBrand(t *testing.T) {
	job := fmt.Sprintf("brandtest-%d", os.Getpid())
	g, err := proc.Open(proc.Config{Job: job})
	must.Do(t, err)
	brandOf := func(cmd *exec.Cmd) string {
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", cmd.Process.Pid))
		_, after, ok := strings.Cut(string(limits), "Max file locks ")
		if err != nil || !ok {
			t.Fatalf("%v\n%s", err, limits)
		}
		return strings.Fields(after)[0]
	}
	inside := sleeper(t)
	if err := proc.Sweep(job); err != nil || syscall.Kill(inside.Process.Pid, 0) != nil {
		t.Errorf("swept with a daemon: %v", err)
	}
	brand := brandOf(inside)
	inside.Process.Kill()
	inside.Wait()
	must.Do(t, g.Close())
	outside := sleeper(t)
	if err := proc.Sweep(job); err != nil || syscall.Kill(outside.Process.Pid, 0) != nil || brandOf(outside) == brand {
		t.Errorf("swept what began after the job, with brand %s: %v", brandOf(outside), err)
	}
	outside.Process.Kill()
	outside.Wait()
}

// sleeper is a process of no job, or of this process's job, in a session of its own and with an empty environment.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("setsid", "sleep", "1000")
	cmd.Env = []string{}
	must.Do(t, cmd.Start())
	return cmd
}

// mayMakeNamespaces: containers keep root from it.
func mayMakeNamespaces() bool {
	return os.Getuid() == 0 && exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").Run() == nil
}

// TestNextSupervisorSweeps: a supervisor ends what a dead job has left, of which it knows nothing, and nothing else: not what
// belongs to a job that lives, or to another user, nor what carries a limit that someone else has set.
func TestNextSupervisorSweeps(t *testing.T) {
	dead, living, foreign, limited := nap(), nap(), nap(), nap()
	sleeping := func(n int) []int { return carrying(fmt.Sprintf("sleep\x00%d", n)) }
	early := func(pid int) bool { // not yet the other user's
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return bytes.HasPrefix(args, []byte("setpriv"))
	}
	const script = "setsid sleep %[1]d & sleep %[1]d & (env -i setsid sh -c 'PATH=/usr/bin:/bin; (sleep %[1]d <&- >&- 2>&- &) ; exit' &); "
	root := mayMakeNamespaces()
	more, want := "", 3
	if root { // who else may change the user, or make a namespace of processes
		more = fmt.Sprintf("setpriv --reuid 65534 --clear-groups sleep %d & unshare --pid --fork setsid sleep %d & ", foreign, dead)
		want = 5 // with unshare
	}
	other := startGuarded(t, fmt.Sprintf(script, living)+"wait")
	g := startGuarded(t, fmt.Sprintf(script, dead)+more+"wait")
	must.Soon(t, "sleepers", func() bool {
		return len(sleeping(dead)) == want && len(sleeping(living)) == 3 && (!root || len(sleeping(foreign)) == 1 && !slices.ContainsFunc(sleeping(foreign), early))
	})
	by := exec.Command("prlimit", "--locks=4294967296:unlimited", "sleep", fmt.Sprint(limited))
	must.Do(t, by.Start())
	defer by.Wait()
	defer by.Process.Kill()
	g.killBoth(t)
	g.ends(t, -1)
	next := startGuarded(t, "exit 7")
	next.ends(t, 7)
	must.Soon(t, "nothing of the dead job", func() bool { return len(sleeping(dead)) == 0 })
	if n := len(sleeping(living)); n != 3 {
		t.Errorf("%d of 3 sleepers of a job that lives are left", n)
	}
	if n := len(sleeping(limited)); n != 1 {
		t.Errorf("%d of 1 with a limit of another's are left", n)
	}
	if n := len(sleeping(foreign)); root && n != 1 {
		t.Errorf("%d of 1 of another user are left", n)
	}
	for _, pid := range sleeping(foreign) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	other.cmd.Process.Signal(syscall.SIGTERM)
	other.ends(t, 78)
}

// TestSweepInside: who sweeps in a container that a rank has made, where its daemon cannot be seen, spares what the rank has
// there; so does who sweeps outside of a container in which a dead job has left something, for that is another host.
func TestSweepInside(t *testing.T) {
	if !mayMakeNamespaces() {
		t.Skip("a namespace of processes takes root, and in a container --privileged")
	}
	exe, err := os.Executable()
	must.Do(t, err)
	n := nap()
	mark := fmt.Sprintf("sleep\x00%d", n)
	g := startGuarded(t, fmt.Sprintf("exec unshare --pid --fork --mount-proc sh -c 'setsid sleep %d & (sleep %d &); env -i %s=sweep %s; echo swept $?; wait'", n, n, helperMode, exe))
	must.Soon(t, "the sweep", func() bool { return strings.Contains(g.out.String(), "swept ") })
	if left := len(carrying(mark)); left != 2 || !strings.Contains(g.out.String(), "swept 0\n") {
		t.Errorf("%d of 2 sleepers are left of a rank whose daemon lives: %s", left, g.out)
	}
	g.cmd.Process.Signal(syscall.SIGTERM)
	g.ends(t, 78)

	// Of the same user, with supervisor and daemon in a namespace that no job has made.
	host := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c",
		fmt.Sprintf("%s=supervisor TEST_JOB=inside TEST_SCRIPT='setsid sleep %d & wait' %s & read end", helperMode, n, exe))
	end, err := host.StdinPipe()
	must.Do(t, err)
	must.Do(t, host.Start())
	defer host.Wait()
	defer end.Close()
	must.Soon(t, "a sleeper", func() bool { return len(carrying(mark)) == 1 })
	watchers := carrying("TEST_JOB=inside\x00")
	if len(watchers) != 2 {
		t.Fatalf("supervisor and daemon are %v", watchers)
	}
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range watchers {
			syscall.Kill(pid, sig)
		}
	}
	must.Soon(t, "the end of supervisor and daemon", func() bool { return len(carrying("TEST_JOB=inside\x00")) == 0 })
	if err := proc.Sweep("another"); err != nil || len(carrying(mark)) != 1 {
		t.Errorf("swept another host: %v, left: %v", err, carrying(mark))
	}
}
