//go:build linux

package e2etest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// Python is the interpreter with numpy, and with torch if that is installed.
const Python = "/usr/bin/python3"

// Cluster is a lab together with the binary under test.
type Cluster struct {
	*lab.Lab
	T      *testing.T
	Binary string
	Root   string   // of the source tree, which all hosts see
	Torch  bool     // whether trainings use torch even in short tests
	Env    []string // of every gorun on the launcher's host, in addition
	scale  float64
}

// NewCluster makes a cluster that lives as long as the test, which runs in parallel with others.
func NewCluster(t *testing.T, hosts int) *Cluster {
	t.Helper()
	t.Parallel()
	return NewClusterAlone(t, hosts)
}

// NewClusterAlone is NewCluster for a test that measures speeds and must not run in parallel with others.
func NewClusterAlone(t *testing.T, hosts int) *Cluster {
	t.Helper()
	return NewClusterWith(t, hosts, lab.Options{})
}

// NewClusterWith is NewClusterAlone with a lab that has options.
func NewClusterWith(t *testing.T, hosts int, options lab.Options) *Cluster {
	t.Helper()
	l := lab.ForTest(t, hosts, options)
	binary, err := Binary()
	must.Do(t, err)
	return &Cluster{Lab: l, T: t, Binary: binary, Root: Root()}
}

// Hurry multiplies the limits of package liveness in the cluster's jobs by a factor, in short tests. The long tests wait
// as long as users do.
func (c *Cluster) Hurry(factor float64) {
	if testing.Short() {
		c.scale = factor
	}
}

// Scaled returns a duration of package liveness at the scale of the cluster's jobs.
func (c *Cluster) Scaled(d time.Duration) time.Duration {
	if c.scale == 0 {
		return d
	}
	return time.Duration(float64(d) * c.scale)
}

// Shared makes a directory that all hosts see: each has a /tmp of its own.
func (c *Cluster) Shared(name string) string {
	c.T.Helper()
	dir, err := os.MkdirTemp(filepath.Join(c.Root, "build"), name)
	must.Do(c.T, err)
	c.T.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Result of a gorun that has ended.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Good ends the test unless the exit code is 0.
func (r Result) Good(t testing.TB) Result {
	t.Helper()
	if r.Code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	return r
}

// Command prepares gorun on the launcher's host.
func (c *Cluster) Command(args ...string) (cmd *lab.Cmd, stdout, stderr *Watch) {
	stdout, stderr = new(Watch), new(Watch)
	cmd = c.Launcher().Command(c.T.Context(), c.Binary, args...)
	cmd.Dir, cmd.Env = c.Root, append(cmd.Env, c.Env...)
	if c.scale != 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("GORUN_TIME_SCALE=%v", c.scale))
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// Begin starts gorun, which the test ends, and waits until its ranks have written a text so often to standard output.
func (c *Cluster) Begin(times int, text string, args ...string) (cmd *lab.Cmd, stdout, stderr *Watch) {
	c.T.Helper()
	cmd, stdout, stderr = c.Command(args...)
	must.Do(c.T, cmd.Start())
	c.T.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() }) // whatever comes
	c.Await(fmt.Sprintf("%q %d times", text, times), func() bool { return stdout.Count(text) == times })
	return cmd, stdout, stderr
}

// Shell runs a line on a host, and returns what it prints.
func (c *Cluster) Shell(h *lab.LabHost, line string) string {
	c.T.Helper()
	out, err := h.Exec(c.T.Context(), "sh", "-c", line)
	must.Do(c.T, err)
	return out
}

// Gorun runs gorun to its end and then checks every host for leftovers.
func (c *Cluster) Gorun(args ...string) Result {
	c.T.Helper()
	r := c.GorunBeside(args...)
	c.ExpectNothingLeft(5 * time.Second)
	return r
}

// GorunBeside runs gorun to its end without that check, for hosts with other jobs.
func (c *Cluster) GorunBeside(args ...string) Result {
	c.T.Helper()
	cmd, stdout, stderr := c.Command(args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.T.Fatal(err)
	}
	return Result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// ExpectNothingLeft fails the test unless the job vanishes from every host within the given time.
func (c *Cluster) ExpectNothingLeft(within time.Duration) {
	c.T.Helper()
	c.ExpectLeft(within, "")
}

// ExpectLeft is ExpectNothingLeft, except for leftovers that contain a text.
func (c *Cluster) ExpectLeft(within time.Duration, but string) {
	c.T.Helper()
	// A look reads the kernel's table of all connections, so the pauses between looks grow with the time that has passed.
	for begin := time.Now(); ; time.Sleep(min(max(time.Since(begin)/10, 20*time.Millisecond), 250*time.Millisecond)) {
		last := time.Since(begin) > within
		left := c.left(but, last)
		if len(left) == 0 {
			return
		}
		if last {
			c.T.Errorf("left behind after %v:\n%s", within, strings.Join(left, "\n"))
			return
		}
	}
}

// left lists what is left on the first host that has something left, or on all hosts, except for leftovers that contain a text.
func (c *Cluster) left(but string, all bool) (list []string) {
	for _, h := range append(c.Hosts(), c.Launcher()) {
		for _, l := range h.Leftovers() {
			if but == "" || !strings.Contains(l, but) {
				list = append(list, h.Name()+": "+l)
			}
		}
		if len(list) > 0 && !all {
			break
		}
	}
	return list
}

// Await polls until f is true.
func (c *Cluster) Await(what string, f func() bool) {
	c.T.Helper()
	for deadline := time.Now().Add(90 * time.Second); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.T.Fatalf("no %s", what)
		}
	}
}

// Busy is a program whose ranks have a session, an arena, an operation under way, and children that try hard to
// survive.
const Busy = `
import os, subprocess, sys, time
import numpy as np
import gorun.numpy as hvd
hvd.init()
subprocess.Popen(["sleep", "1000"])
subprocess.Popen(["setsid", "sleep", "1000"])
subprocess.run(["sh", "-c", "setsid sh -c 'trap \"\" TERM; sleep 1000' & exit 0"])
x = np.ones(1 << 18, dtype=np.float32)
n = 0
while True:
    time.sleep(0.02 * (hvd.rank() == 0))  # the others wait for it, which takes no processor
    hvd.allreduce(x, name="x")
    n += 1
    if n == 5:
        print("busy", flush=True)
`

// HasCgroups reports whether hosts may make control groups. All hosts see the same groups, with the same process numbers.
func (c *Cluster) HasCgroups() bool {
	return c.Host(1).Command(c.T.Context(), "sh", "-c", "d=$(mktemp -d /sys/fs/cgroup/gorun-test-XXXXXX) && rmdir $d").Run() == nil
}

// Watch is a buffer that may be read while it is written.
type Watch struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (w *Watch) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

func (w *Watch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// Count returns the number of occurrences of a text.
func (w *Watch) Count(text string) int { return strings.Count(w.String(), text) }

// Within is Gorun for a job that may hang: it is interrupted after some time.
func (c *Cluster) Within(limit time.Duration, args ...string) Result {
	c.T.Helper()
	r := c.Bounded(limit, args...)
	c.ExpectNothingLeft(10 * time.Second)
	return r
}

// Bounded is Within for hosts with resident daemons.
func (c *Cluster) Bounded(limit time.Duration, args ...string) Result {
	c.T.Helper()
	cmd, stdout, stderr := c.Command(args...)
	must.Do(c.T, cmd.Start())
	interrupt := time.AfterFunc(limit, func() { cmd.Process.Signal(os.Interrupt) })
	cmd.Wait()
	interrupt.Stop()
	return Result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// Rows returns the lines of a table without comments.
func Rows(table string) []string {
	var out []string
	for line := range strings.Lines(table) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}

// Slay kills, with -9, a process of a host other than the launcher whose command line contains a text, and waits until it
// has ended.
func (c *Cluster) Slay(launcher *lab.Cmd, h *lab.LabHost, text string) {
	c.T.Helper()
	victim := 0
	c.Await(fmt.Sprintf("%q on %s", text, h.Name()), func() bool {
		for _, p := range h.Processes() {
			if p.PID != launcher.Process.Pid && p.State != 'Z' && strings.Contains(p.Args, text) {
				victim = p.PID
			}
		}
		return victim != 0
	})
	must.Do(c.T, syscall.Kill(victim, syscall.SIGKILL))
	c.Await("end of it", func() bool { // its parent may not wait for it at once
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", victim))
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

// Sent is how many bytes hosts have sent on their network.
func (c *Cluster) Sent(hosts ...*lab.LabHost) (bytes int) {
	c.T.Helper()
	for _, h := range hosts {
		text, err := h.Exec(c.T.Context(), "awk", "/eth0:/ {print $10}", "/proc/net/dev")
		must.Do(c.T, err)
		n, err := strconv.Atoi(strings.TrimSpace(text))
		must.Do(c.T, err)
		bytes += n
	}
	return bytes
}
