//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/lab"
)

// lasting is a cluster with a long-running daemon on each host, of two slots.
type lasting struct {
	*cluster
	key   string
	idle  map[string][]string // what Leftovers finds beside jobs
	args  []string            // of a launch
	hosts []*lab.Cmd
	logs  []*watch
	// Of daemons that start from now on: their binary, and what else is in their environment.
	daemon string
	env    []string
}

func newLasting(t *testing.T, hosts int) *lasting {
	t.Helper()
	c := newCluster(t, hosts)
	key := filepath.Join(t.TempDir(), "key")
	secret := []byte(strings.Repeat("a cluster's key ", 4))
	if err := os.WriteFile(key, secret, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &lasting{cluster: c, idle: map[string][]string{}, key: key, daemon: c.binary}
	s.args = []string{"--cluster", "host2", "--cluster-key-file", "/root/.ssh/key"}
	for _, h := range append(c.Hosts(), c.Launcher()) { // where Leftovers does not look
		if _, err := h.Exec(t.Context(), "sh", "-c", "umask 077; echo '"+string(secret)+"' >/root/.ssh/key"); err != nil {
			t.Fatal(err)
		}
	}
	s.hosts, s.logs = make([]*lab.Cmd, hosts), make([]*watch, hosts)
	for i := range c.Hosts() {
		s.start(i)
	}
	c.await("cluster", func() bool { return strings.Count(s.ps(), "0 of 2") == hosts })
	for _, h := range c.Hosts() {
		s.idle[h.Name()] = slices.DeleteFunc(h.Leftovers(), func(l string) bool { return strings.Contains(l, " --resumable") })
	}
	t.Cleanup(func() {
		for i, cmd := range s.hosts {
			if cmd == nil {
				continue // without power
			}
			cmd.Process.Signal(syscall.SIGTERM)
			// The test's context has ended, which Wait may say of one that ends well.
			if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() > 0 {
				t.Errorf("daemon of host%d: %v\n%s", i+1, err, s.logs[i].buf)
			}
		}
		c.expectNothingLeft(5 * time.Second)
	})
	return s
}

// start starts the daemon of a host.
func (s *lasting) start(i int) {
	s.t.Helper()
	args := []string{"worker", "--cluster-key-file", "/root/.ssh/key", "--slots", "2"}
	if i > 0 {
		args = append(args, "--join", "host1")
	}
	cmd := s.Host(i+1).Command(s.t.Context(), s.daemon, args...)
	cmd.Env = slices.Concat(cmd.Env, s.env, []string{"XDG_STATE_HOME=/root/.cache/gorun/state"}) // where Leftovers does not look
	log := &watch{buf: new(bytes.Buffer)}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.hosts[i], s.logs[i] = cmd, log
	s.await("daemon", func() bool { return log.count("takes jobs") == 1 })
}

func (s *lasting) ps() string {
	cmd, stdout, stderr := s.command(append([]string{"ps"}, s.args...)...)
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("%v\n%s", err, stderr)
	}
	return stdout.String()
}

// run is a launch to its end, after which only the daemons may be there.
func (s *lasting) run(args ...string) result {
	s.t.Helper()
	cmd, stdout, stderr := s.command(slices.Concat(s.args, args)...)
	cmd.Run()
	s.expectIdle()
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func (s *lasting) expectIdle() {
	s.t.Helper()
	var left []string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		left = nil
		for _, h := range s.Hosts() {
			spare := 0 // and the one that watches over it
			for _, l := range h.Leftovers() {
				switch {
				case slices.Contains(s.idle[h.Name()], l), strings.Contains(l, "worker --cluster-key-file"):
				case strings.HasSuffix(l, "worker --daemon --resumable idle"):
					spare++
				case strings.HasSuffix(l, "worker --resumable"):
					spare--
				default:
					left = append(left, h.Name()+": "+l)
				}
			}
			if spare != 0 {
				left = append(left, h.Name()+": half of a spare daemon")
			}
		}
		if len(left) == 0 {
			return
		}
	}
	s.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
}

// TestCluster launches without ssh: a job over both hosts, one that waits for it, and one that is killed.
func TestCluster(t *testing.T) {
	s := newLasting(t, 2)
	for _, h := range s.Hosts() { // no ssh, really
		if _, err := h.Exec(t.Context(), "sh", "-c", "echo >/root/.ssh/authorized_keys"); err != nil {
			t.Fatal(err)
		}
	}
	r := s.run("-v", "-np", "4", python, "-c", "import numpy as np, gorun.numpy as hvd; hvd.init(); print(hvd.allreduce(np.ones(3), op=hvd.Sum))")
	if r.code != 0 || strings.Count(r.stdout, "[4. 4. 4.]") != 4 || !strings.Contains(r.stderr, "epoch 1, ring: host1 → host2") {
		t.Fatalf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	if r := s.run("-np", "2", "sh", "-c", "exit 7"); r.code != 7 {
		t.Errorf("exit code %d, want 7\n%s", r.code, r.stderr)
	}
	if r := s.run("-np", "5", "true"); r.code != 2 || !strings.Contains(r.stderr, "the cluster has host1:2,host2:2: no room for 5 ranks") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}

	// The first job holds 3 slots; the second wants 2 and waits. The first is killed with its launcher.
	first, stdout, stderr := s.command(slices.Concat(s.args, []string{"-np", "3", python, "-c", busy})...)
	working := &watch{buf: stdout}
	first.Stdout = working
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	s.await("busy rank", func() bool { return working.count("busy") == 3 })
	second, secondOut, secondErr := s.command(slices.Concat(s.args, []string{"-np", "2", "sh", "-c", "echo mine"})...)
	said := &watch{buf: secondErr}
	second.Stderr = said
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	s.await("word of the queue", func() bool { return said.count("note: the job waits for 2 ranks; free are host1:") == 1 })
	if text := s.ps(); !strings.Contains(text, "waits") || !strings.Contains(text, "root") {
		t.Errorf("gorun ps:\n%s", text)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.Wait()
	if err := second.Wait(); err != nil || strings.Count(secondOut.String(), "mine") != 2 {
		t.Errorf("the second job: %v\n%s\n%s\nthe first: %s", err, secondOut, said.buf, stderr)
	}
	s.expectIdle()

	// Another key is refused, and so is one that others can read.
	if _, err := s.Launcher().Exec(t.Context(), "sh", "-c", "umask 077; head -c 32 /dev/urandom | base64 >/root/.ssh/other; cp /root/.ssh/key /root/.ssh/open; chmod 644 /root/.ssh/open"); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"other": "host2:7575: authenticate: the other side does not hold the key", "open": "others can read it"} {
		cmd, _, stderr := s.command("--cluster", "host2", "--cluster-key-file", "/root/.ssh/"+file, "true")
		if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s key: %v\n%s", file, err, stderr)
		}
	}
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

// TestClusterSpare: a daemon waits on each host and serves one job after the other, as long as each leaves it as it was. Jobs
// that did not are served, and swept, all the same; and of a daemon that is killed while it waits, nothing is left.
func TestClusterSpare(t *testing.T) {
	s := newLasting(t, 2)
	const idle = "worker --daemon --resumable idle"
	spare := func() int {
		t.Helper()
		s.await("spare daemon", func() bool { return s.runs(1, idle) })
		return s.pid(1, idle)
	}
	run := func(args ...string) {
		t.Helper()
		if r := s.run(append([]string{"-np", "4"}, args...)...); r.code != 0 {
			t.Fatalf("exit code %d\n%s", r.code, r.stderr)
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
		if err := syscall.Kill(s.pid(1, victim), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s.expectIdle()
	}
	spare()
	s.hosts[0].Process.Kill()
	s.hosts[0].Wait()
	s.await("end of the spare daemon", func() bool { return len(s.Host(1).Processes()) == 1 })
	s.start(0) // for the end of this test
}

// TestClusterDaemonRestarts: a daemon that is killed and started again, or told to leave, costs a job nothing, not a
// rank and not a line.
func TestClusterDaemonRestarts(t *testing.T) {
	s := newLasting(t, 2)
	cmd, stdout, stderr := s.command(slices.Concat(s.args, []string{"--no-tag-output", "-np", "4", python, "-c", steps})...)
	working := &watch{buf: stdout}
	cmd.Stdout = working
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() }) // whatever comes
	s.await("training", func() bool { return working.count("step 20\n") == 4 })
	for i, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGHUP} { // host1 keeps the queue
		if err := s.hosts[i].Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		s.hosts[i].Wait()
		s.start(i)
	}
	s.await("more of it", func() bool { return working.count("step 200\n") == 4 })
	s.await("word of its slots", func() bool {
		return strings.Count(s.ps(), "2 of 2") == 2 && strings.Contains(s.ps(), "host1:2,host2:2")
	})
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stderr, stdout)
	}
	if n := working.count("begins "); n != 4 {
		t.Errorf("%d ranks began", n)
	}
	for i := range 400 {
		if n := working.count(fmt.Sprintf("step %d\n", i)); n != 4 {
			t.Errorf("step %d was printed %d times", i, n)
		}
	}
	s.expectIdle()
}

// TestClusterLosesDaemon: with the daemon of a job dies its part of that job, and nothing else.
func TestClusterLosesDaemon(t *testing.T) {
	s := newLasting(t, 2)
	cmd, stdout, stderr := s.command(slices.Concat(s.args, []string{"-np", "4", python, "-c", busy})...)
	working := &watch{buf: stdout}
	cmd.Stdout = working
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.await("busy rank", func() bool { return working.count("busy") == 4 })
	if err := syscall.Kill(s.pid(1, "worker --daemon --resumable busy"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 255 || !strings.Contains(stderr.String(), "gorun: error: host1: run: ") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	s.expectIdle()
}

// TestClusterDaemonStaysAway: a standing daemon that is killed and does not come back takes its part of a job with it after
// the job's lease, and a minute later nothing is left on its host either.
func TestClusterDaemonStaysAway(t *testing.T) {
	s := newLasting(t, 2)
	const lease = 6 * time.Second
	cmd, stdout, stderr := s.command(slices.Concat(s.args, []string{"--lease", lease.String(), "-np", "4", python, "-c", busy})...)
	working := &watch{buf: stdout}
	cmd.Stdout = working
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() }) // whatever comes
	s.await("busy rank", func() bool { return working.count("busy") == 4 })
	struck := time.Now()
	if err := s.hosts[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.hosts[0].Wait()
	s.hosts[0] = nil
	cmd.Wait()
	took := time.Since(struck)
	t.Logf("the job ended after %v", took.Round(time.Millisecond))
	if took < lease-2*time.Second || took > lease+25*time.Second { // it waits for the daemon to say that it ends
		t.Errorf("the job ended after %v, want the lease of %v and a little", took, lease)
	}
	s.await("end of the ranks", func() bool { return len(s.Host(1).Processes()) == 1 })
	if code := cmd.ProcessState.ExitCode(); code != 255 || !strings.Contains(stderr.String(), "gorun: error: host1: ") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	s.expectIdle()
}

// TestClusterElastic: a job goes on when a host of the cluster dies, and uses it again when it has booted.
func TestClusterElastic(t *testing.T) {
	needTorch(t)
	s := newLasting(t, 3)
	j := s.trainOn(slices.Concat(s.args, []string{"--min-np", "1", "--max-np", "3", "-ppn", "1"})...)
	j.idle = s.expectIdle
	j.await(`is rank 2 of 3 from batch 0`)
	j.await(`batch 20$`)
	gone := make(chan struct{})
	go func() {
		s.hosts[2].Wait()
		close(gone)
	}()
	struck := time.Now()
	if err := s.Host(3).Kill(); err != nil {
		t.Fatal(err)
	}
	<-gone
	// The others say that it has hung up on them, and nobody answers there: no lease is waited for.
	goesOn := j.again(2, struck)
	t.Logf("the others went on %v after the host died", goesOn.Sub(struck).Round(time.Millisecond))
	if took := goesOn.Sub(struck); took > 15*time.Second {
		t.Errorf("the others went on only %v after the host died\n%s", took, j.out)
	}
	if err := s.Host(3).Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Host(3).Exec(t.Context(), "sh", "-c", "umask 077; mkdir -p /root/.ssh; echo '"+strings.Repeat("a cluster's key ", 4)+"' >/root/.ssh/key"); err != nil {
		t.Fatal(err)
	}
	s.start(2)
	j.await(`is rank 2 of 3 from batch [1-9]`)
	if text := s.ps(); strings.Count(text, "1 of 2") != 3 {
		t.Errorf("gorun ps:\n%s", text)
	}
	j.enough()
	j.end(3)
}

// TestClusterDetach: a detached job needs nothing of the machine that started it, and is reached from every other.
func TestClusterDetach(t *testing.T) {
	s := newLasting(t, 2)
	cmd, stdout, stderr := s.command(slices.Concat(s.args, []string{"--detach", "-np", "3", python, "-c", busy})...)
	if err := cmd.Run(); err != nil || strings.TrimSpace(stdout.String()) != "host2/1" {
		t.Fatalf("printed %q, %v\n%s", stdout, err, stderr)
	}
	ask := func(host *lab.Host, args ...string) (string, error) {
		cmd := host.Command(t.Context(), s.binary, args...)
		cmd.Dir = s.root
		cmd.Env = append(cmd.Env, "GORUN_CLUSTER=host1", "GORUN_CLUSTER_KEY_FILE=/root/.ssh/key")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, h := range []*lab.Host{s.Launcher(), s.Host(1)} {
		s.await("busy rank in logs", func() bool {
			out, _ := ask(h, "logs", "host2/1")
			return strings.Count(out, "<stdout>:busy") == 3
		})
	}
	s.await("work", func() bool {
		out, _ := ask(s.Host(1), "top", "--once", "1")
		return strings.Count(out, "host") >= 3 && !strings.Contains(out, " 0 MiB")
	})
	if out, err := ask(s.Host(1), "ps"); err != nil || !strings.Contains(out, "host2/1") || !strings.Contains(out, "running") {
		t.Errorf("%v\n%s", err, out)
	}
	attached, out, _ := s.command(slices.Concat([]string{"attach"}, s.args)...)
	if err := attached.Start(); err != nil {
		t.Fatal(err)
	}
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
	// One that cannot start says why, and with which exit code.
	if out, err := ask(s.Launcher(), "--detach", "-np", "9", "true"); err == nil || !strings.Contains(out, "no room for 9 ranks") {
		t.Errorf("%v\n%s", err, out)
	}
	s.expectIdle()
}
