package cluster

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// run is a launch to its end, after which only the daemons may be there.
func run(s *e2etest.Lasting, args ...string) e2etest.Result {
	s.T.Helper()
	defer s.ExpectIdle()
	return s.GorunBeside(slices.Concat(s.Args, args)...)
}

// TestCluster launches without ssh: a job over both hosts, one that waits for it, and one that is killed.
func TestCluster(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	for _, h := range s.Hosts() { // no ssh, really
		s.Shell(h, "echo >/root/.ssh/authorized_keys")
	}
	r := run(s, "-v", "-np", "4", e2etest.Python, "-c", "import numpy as np, gorun.numpy as hvd; hvd.init(); print(hvd.allreduce(np.ones(3), op=hvd.Sum))")
	if r.Code != 0 || strings.Count(r.Stdout, "[4. 4. 4.]") != 4 || !strings.Contains(r.Stderr, "epoch 1, ring: host1 → host2") {
		t.Fatalf("exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := run(s, "-np", "2", "sh", "-c", "exit 7"); r.Code != 7 {
		t.Errorf("exit code %d, want 7\n%s", r.Code, r.Stderr)
	}
	if r := run(s, "-np", "5", "true"); r.Code != 2 || !strings.Contains(r.Stderr, "the cluster has host1:2,host2:2: no room for 5 ranks") {
		t.Errorf("exit code %d\n%s", r.Code, r.Stderr)
	}

	// The first job holds 3 slots; the second wants 2 and waits. The first is killed with its launcher.
	first, _, stderr := s.Begin(3, "busy", slices.Concat(s.Args, []string{"-np", "3", e2etest.Python, "-c", e2etest.Busy})...)
	second, secondOut, secondErr := s.Command(slices.Concat(s.Args, []string{"-np", "2", "sh", "-c", "echo mine"})...)
	must.Do(t, second.Start())
	s.Await("word of the queue", func() bool { return secondErr.Count("note: the job waits for 2 ranks; free are host1:") == 1 })
	if text := s.Ps(); !strings.Contains(text, "waits") || !strings.Contains(text, "root") {
		t.Errorf("gorun ps:\n%s", text)
	}
	must.Do(t, first.Process.Kill())
	first.Wait()
	if err := second.Wait(); err != nil || strings.Count(secondOut.String(), "mine") != 2 {
		t.Errorf("the second job: %v\n%s\n%s\nthe first: %s", err, secondOut, secondErr, stderr)
	}
	s.ExpectIdle()

	// Another key is refused, and so is one that others can read.
	s.Shell(s.Launcher(), "umask 077; head -c 32 /dev/urandom | base64 >/root/.ssh/other; cp /root/.ssh/key /root/.ssh/open; chmod 644 /root/.ssh/open")
	for file, want := range map[string]string{"other": "host2:7575: authenticate: the other side does not hold the key", "open": "others can read it"} {
		cmd, _, stderr := s.Command("--cluster", "host2", "--cluster-key-file", "/root/.ssh/"+file, "true")
		if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s key: %v\n%s", file, err, stderr)
		}
	}
}

// TestRequireEncrypt: daemons that demand encryption refuse jobs without it, and launchers, detached ones too, encrypt by
// themselves.
func TestRequireEncrypt(t *testing.T) {
	t.Parallel()
	s := e2etest.NewLastingWith(t, 2, lab.Options{}, "--require-encrypt")
	sum := []string{"-v", "-np", "4", e2etest.Python, "-c", "import numpy as np, gorun.numpy as hvd; hvd.init(); print(hvd.allreduce(np.ones(3), op=hvd.Sum))"}
	if r := run(s, sum...); r.Code != 0 || strings.Count(r.Stdout, "[4. 4. 4.]") != 4 || !strings.Contains(r.Stderr, "links are encrypted") {
		t.Errorf("exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := run(s, append([]string{"--encrypt=false"}, sum...)...); r.Code != 2 || r.Stdout != "" || !strings.Contains(r.Stderr, "--encrypt=false: the cluster at host2:7575 takes only jobs that encrypt\n") {
		t.Errorf("--encrypt=false: exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	cmd, stdout, stderr := s.Command(slices.Concat(s.Args, []string{"--detach"}, sum)...)
	if err := cmd.Run(); err != nil {
		t.Fatalf("--detach: %v\n%s", err, stderr)
	}
	name := strings.Fields(stdout.String())[0]
	cmd, stdout, stderr = s.Command(slices.Concat([]string{"logs", "-f"}, s.Args, []string{name})...)
	if err := cmd.Run(); err != nil || strings.Count(stdout.String(), "[4. 4. 4.]") != 4 || !strings.Contains(stdout.String()+stderr.String(), "links are encrypted") {
		t.Errorf("logs of the detached job: %v\n%s\n%s", err, stdout, stderr)
	}
	s.ExpectIdle()
}

// steps prints numbers that must all arrive, a few of them while the daemon that passes them on is not there.
const steps = `
import os, time
import numpy as np
import gorun.numpy as hvd
hvd.init()
print("begins", os.getpid(), flush=True)
for i in range(400):
    x = hvd.allreduce(np.full(1000, i + hvd.rank(), np.float64), op=hvd.Sum, name="x")
    assert x[0] == 4 * i + 6, x[0]
    print("step", i, flush=True)
    time.sleep(0.02)
`

// TestClusterSpare: a daemon waits on each host and serves one job after the other, as long as each leaves it as it
// was. Jobs that did not are served, and swept, all the same; and of a daemon that is killed while it waits, nothing is
// left.
func TestClusterSpare(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	const idle = "worker --daemon --resumable idle"
	spare := func() int {
		t.Helper()
		s.Await("spare daemon", func() bool { return s.Runs(1, idle) })
		return s.Pid(1, idle)
	}
	run := func(args ...string) {
		t.Helper()
		if r := run(s, append([]string{"-np", "4"}, args...)...); r.Code != 0 {
			t.Fatalf("exit code %d\n%s", r.Code, r.Stderr)
		}
	}
	first := spare()
	time.Sleep(100 * time.Millisecond) // until it waits
	for range 3 {
		run("sh", "-c", "echo $RANK")
		if now := spare(); now != first {
			t.Fatalf("daemon %d waits after a job, %d before it", now, first)
		}
	}
	run("sh", "-c", "setsid sleep 1000 & true") // has to be killed
	run("true")
	for _, victim := range []string{idle, "worker --resumable"} {
		spare()
		must.Do(t, syscall.Kill(s.Pid(1, victim), syscall.SIGKILL))
		s.ExpectIdle()
	}
	spare()
	s.Daemons[0].Process.Kill()
	s.Daemons[0].Wait()
	s.Await("end of the spare daemon", func() bool { return len(s.Host(1).Processes()) == 1 })
	s.Start(0) // for the end of this test
}

// TestClusterDaemonRestarts: a daemon that is killed and started again, or asked to leave, costs a job nothing, not a
// rank and not a line.
func TestClusterDaemonRestarts(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	cmd, stdout, stderr := s.Begin(4, "step 20\n", slices.Concat(s.Args, []string{"--no-tag-output", "-np", "4", e2etest.Python, "-c", steps})...)
	for i, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGHUP} { // host1 keeps the queue
		must.Do(t, s.Daemons[i].Process.Signal(sig))
		s.Daemons[i].Wait()
		s.Start(i)
	}
	s.Await("more of it", func() bool { return stdout.Count("step 200\n") == 4 })
	s.Await("word of its slots", func() bool {
		return strings.Count(s.Ps(), "2 of 2") == 2 && strings.Contains(s.Ps(), "host1:2,host2:2")
	})
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stderr, stdout)
	}
	if n := stdout.Count("begins "); n != 4 {
		t.Errorf("%d ranks began", n)
	}
	for i := range 400 {
		if n := stdout.Count(fmt.Sprintf("step %d\n", i)); n != 4 {
			t.Errorf("step %d was printed %d times", i, n)
		}
	}
	s.ExpectIdle()
}

// TestClusterLosesDaemon: with the daemon of a job dies its part of that job, and nothing else.
func TestClusterLosesDaemon(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	cmd, _, stderr := s.Begin(4, "busy", slices.Concat(s.Args, []string{"-np", "4", e2etest.Python, "-c", e2etest.Busy})...)
	must.Do(t, syscall.Kill(s.Pid(1, "worker --daemon --resumable busy"), syscall.SIGKILL))
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 255 || !strings.Contains(stderr.String(), "gorun: error: host1: run: ") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	s.ExpectIdle()
}

// TestClusterDaemonStaysAway: a resident daemon that is killed and does not come back takes its part of a job with it
// after the job's lease, and a minute later nothing is left on its host either.
func TestClusterDaemonStaysAway(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	const lease = 6 * time.Second
	cmd, _, stderr := s.Begin(4, "busy", slices.Concat(s.Args, []string{"--lease", lease.String(), "-np", "4", e2etest.Python, "-c", e2etest.Busy})...)
	struck := time.Now()
	must.Do(t, s.Daemons[0].Process.Kill())
	s.Daemons[0].Wait()
	s.Daemons[0] = nil
	cmd.Wait()
	took := time.Since(struck)
	t.Logf("the job ended after %v", took.Round(time.Millisecond))
	if took < lease-2*time.Second || took > lease+25*time.Second { // it waits until the daemon reports that it ends
		t.Errorf("the job ended after %v, want the lease of %v and a little", took, lease)
	}
	s.Await("end of the ranks", func() bool { return len(s.Host(1).Processes()) == 1 })
	if code := cmd.ProcessState.ExitCode(); code != 255 || !strings.Contains(stderr.String(), "gorun: error: host1: ") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	s.ExpectIdle()
}

// TestClusterLauncherCut: a launcher is cut off from the hosts of its job for good. They end the job soon after they
// have missed it for as long as they wait for one: a minute more would be for the resident daemon that is being
// replaced.
func TestClusterLauncherCut(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	s.Hurry(0.2)
	cmd, _, stderr := s.Begin(4, "busy", slices.Concat(s.Args, []string{"-np", "4", e2etest.Python, "-c", e2etest.Busy})...)
	ranks := func() (n int) {
		for _, h := range s.Hosts() {
			for _, p := range h.Processes() {
				if strings.Contains(p.Args, "import gorun.numpy as hvd") {
					n++
				}
			}
		}
		return n
	}
	if n := ranks(); n != 4 {
		t.Fatalf("%d ranks are found, want 4", n)
	}
	must.Do(t, s.Launcher().Cut())
	struck := time.Now()
	for ranks() > 0 && time.Since(struck) < 2*time.Minute {
		time.Sleep(100 * time.Millisecond)
	}
	took, limit := time.Since(struck), s.Scaled(35*time.Second)
	t.Logf("the ranks ended after %v", took.Round(time.Millisecond))
	if took < limit-s.Scaled(5*time.Second)-time.Second || took > limit+15*time.Second { // 5 s pass between two signs of life
		t.Errorf("the ranks ended after %v, want %v and a little", took, limit)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 255 || !strings.Contains(stderr.String(), "this machine has heard from none of its 2 hosts since") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	must.Do(t, s.Launcher().Heal())
	s.ExpectIdle()
}

// TestClusterElastic: a job goes on when a host of the cluster dies, and uses it again when it has booted.
func TestClusterElastic(t *testing.T) {
	s := e2etest.NewLasting(t, 3)
	j := s.TrainOn(slices.Concat(s.Args, []string{"--min-np", "1", "--max-np", "3", "-ppn", "1"})...)
	j.Idle = s.ExpectIdle
	j.Await(`is rank 2 of 3 from batch 0`)
	j.Await(`batch 20$`)
	struck := time.Now()
	s.PowerOff(2)
	// The others report that it has hung up on them, and no one answers there: no lease is waited for.
	goesOn := j.Again(2, struck)
	t.Logf("the others went on %v after the host died", goesOn.Sub(struck).Round(time.Millisecond))
	if took := goesOn.Sub(struck); took > 15*time.Second {
		t.Errorf("the others went on only %v after the host died\n%s", took, j.Out)
	}
	s.Boot(2)
	j.Await(`is rank 2 of 3 from batch [1-9]`)
	if text := s.Ps(); strings.Count(text, "1 of 2") != 3 {
		t.Errorf("gorun ps:\n%s", text)
	}
	j.EndNow(3)
}

// TestClusterDetach: a detached job needs nothing of the machine that started it, and is reached from every other.
func TestClusterDetach(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	cmd, stdout, stderr := s.Command(slices.Concat(s.Args, []string{"--detach", "-np", "3", e2etest.Python, "-c", e2etest.Busy})...)
	if err := cmd.Run(); err != nil || strings.TrimSpace(stdout.String()) != "host2/1" {
		t.Fatalf("printed %q, %v\n%s", stdout, err, stderr)
	}
	ask := func(host *lab.LabHost, args ...string) (string, error) {
		cmd := host.Command(t.Context(), s.Binary, args...)
		cmd.Dir = s.Root
		cmd.Env = append(cmd.Env, "GORUN_CLUSTER=host1", "GORUN_CLUSTER_KEY_FILE=/root/.ssh/key")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, h := range []*lab.LabHost{s.Launcher(), s.Host(1)} {
		s.Await("busy rank in logs", func() bool {
			out, _ := ask(h, "logs", "host2/1")
			return strings.Count(out, "<stdout>:busy") == 3
		})
	}
	s.Await("work", func() bool {
		out, _ := ask(s.Host(1), "top", "--once", "1")
		return strings.Count(out, "host") >= 3 && !strings.Contains(out, " 0 MiB")
	})
	if out, err := ask(s.Host(1), "ps"); err != nil || !strings.Contains(out, "host2/1") || !strings.Contains(out, "running") {
		t.Errorf("%v\n%s", err, out)
	}
	attached, out, _ := s.Command(slices.Concat([]string{"attach"}, s.Args)...)
	must.Do(t, attached.Start())
	if out, err := ask(s.Host(1), "stop"); err != nil || !strings.Contains(out, "job host2/1 has ended") {
		t.Errorf("%v\n%s", err, out)
	}
	attached.Wait()
	if code := attached.ProcessState.ExitCode(); code != 143 && code != 1 { // it may have come too late
		t.Errorf("attach exited with %d\n%s", code, out)
	}
	if out, _ := ask(s.Launcher(), "ps"); !strings.Contains(out, "ended with 143") {
		t.Error(out)
	}
	// One that cannot start reports why, with the exit code of that.
	if out, err := ask(s.Launcher(), "--detach", "-np", "9", "true"); err == nil || !strings.Contains(out, "no room for 9 ranks") {
		t.Errorf("%v\n%s", err, out)
	}
	s.ExpectIdle()
}
