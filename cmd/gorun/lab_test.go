//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/lab"
)

// python is the interpreter that has numpy, and torch where it is installed at all.
const python = "/usr/bin/python3"

// built makes the real binary once, Python binding included.
var built = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("make", "-s", "-C", root, "build").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("make build: %w: %s", err, out)
	}
	return filepath.Join(root, "bin", "gorun"), nil
})

// cluster is a lab with the binary at hand.
type cluster struct {
	*lab.Lab
	t      *testing.T
	binary string
	root   string
}

func newCluster(t *testing.T, hosts int) *cluster {
	t.Helper()
	t.Parallel()
	return newClusterAlone(t, hosts)
}

// newClusterAlone is newCluster for a test that measures speeds: none of the others runs meanwhile.
func newClusterAlone(t *testing.T, hosts int) *cluster {
	t.Helper()
	return newClusterWith(t, hosts, lab.Options{})
}

func newClusterWith(t *testing.T, hosts int, options lab.Options) *cluster {
	t.Helper()
	l := lab.ForTest(t, hosts, options)
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{l, t, binary, filepath.Dir(filepath.Dir(binary))}
}

// shared makes a directory that all hosts see: each has a /tmp of its own.
func (c *cluster) shared(name string) string {
	c.t.Helper()
	dir, err := os.MkdirTemp(filepath.Join(c.root, "build"), name)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// result of a gorun that has ended.
type result struct {
	code           int
	stdout, stderr string
}

// command prepares gorun on the launcher's host.
func (c *cluster) command(args ...string) (*lab.Cmd, *bytes.Buffer, *bytes.Buffer) {
	var stdout, stderr bytes.Buffer
	cmd := c.Launcher().Command(c.t.Context(), c.binary, args...)
	cmd.Dir = c.root
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	return cmd, &stdout, &stderr
}

// gorun runs to the end and then looks for leftovers on every host.
func (c *cluster) gorun(args ...string) result {
	c.t.Helper()
	r := c.gorunBeside(args...)
	c.expectNothingLeft(5 * time.Second)
	return r
}

// gorunBeside runs to the end where another job may have left something.
func (c *cluster) gorunBeside(args ...string) result {
	c.t.Helper()
	cmd, stdout, stderr := c.command(args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// expectNothingLeft allows a job the given time to vanish from every host.
func (c *cluster) expectNothingLeft(within time.Duration) {
	c.t.Helper()
	c.expectLeft(within, "")
}

// expectLeft is expectNothingLeft, but for what contains a text.
func (c *cluster) expectLeft(within time.Duration, but string) {
	c.t.Helper()
	var left []string
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		left = nil
		for _, h := range append(c.Hosts(), c.Launcher()) {
			for _, l := range h.Leftovers() {
				if but != "" && strings.Contains(l, but) {
					continue
				}
				left = append(left, h.Name()+": "+l)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			break
		}
	}
	c.t.Errorf("left behind after %v:\n%s", within, strings.Join(left, "\n"))
}

// await polls until f is true.
func (c *cluster) await(what string, f func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("no %s", what)
		}
	}
}

func (c *cluster) hasTorch() bool {
	return exec.Command(python, "-c", "import torch, sklearn").Run() == nil
}

// TestTrainOnTwoHosts is the main job: an unmodified Horovod script, two hosts that have only sshd and
// Python, four ranks, one command.
func TestTrainOnTwoHosts(t *testing.T) {
	c := newCluster(t, 2)
	script := "contrib/examples/digits_torch.py"
	if !c.hasTorch() {
		t.Skip("install python3-torch and python3-sklearn")
	}
	r := c.gorun("-v", "-np", "4", "-H", "host1:2,host2:2", python, script)
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	if !strings.Contains(r.stderr, "epoch 1, ring: host1 → host2 → (host1)") {
		t.Errorf("the ring is not shown:\n%s", r.stderr)
	}
	found := regexp.MustCompile(`(?m)^\[0\]<stdout>:.*accuracy[^0-9]*([0-9.]+)`).FindAllStringSubmatch(r.stdout, -1)
	if len(found) == 0 {
		t.Fatalf("no accuracy in\n%s", r.stdout)
	}
	accuracy, err := strconv.ParseFloat(found[len(found)-1][1], 64)
	if err != nil || accuracy < 97 {
		t.Errorf("accuracy %v %% (%v), want at least 97\n%s", accuracy, err, r.stdout)
	}
}

// TestPrograms runs the semantic checks of the Python binding over real ssh on two hosts.
func TestPrograms(t *testing.T) {
	scripts, err := filepath.Glob("../../contrib/python/tests/mp/*.py")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("found %d scripts, error %v", len(scripts), err)
	}
	for _, script := range scripts {
		name := filepath.Base(script)
		t.Run(strings.TrimSuffix(name, ".py"), func(t *testing.T) {
			c := newCluster(t, 2)
			if source, err := os.ReadFile(script); err != nil {
				t.Fatal(err)
			} else if strings.Contains(string(source), "torch") && !c.hasTorch() {
				t.Skip("install python3-torch")
			}
			for _, hosts := range []string{"host1:1", "host1:2", "host1:1,host2:1", "host1:2,host2:1", "host1:2,host2:2"} {
				r := c.gorun("-H", hosts, python, "contrib/python/tests/mp/"+name)
				if r.code != 0 {
					t.Errorf("-H %s: exit code %d\n%s\n%s", hosts, r.code, r.stdout, r.stderr)
				}
			}
		})
	}
}

// busy is a program whose ranks are in the middle of everything: a session, an arena, an operation, and
// children of their own that try hard to survive.
const busy = `
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
    hvd.allreduce(x, name="x")
    n += 1
    if n == 5:
        print("busy", flush=True)
`

// victims names one process or several, which are killed in the same instant.
type victims func(c *cluster, gorun int) []int

// the returns a process of a host of which the command line begins so, the nth of them.
func the(host int, begin string, nth int) victims {
	return func(c *cluster, _ int) []int {
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
	return func(c *cluster, gorun int) []int { return append(one(c, gorun), other(c, gorun)...) }
}

// TestKillAnything kills -9 each kind of process in the middle of a job. Soon nothing may be left of it on any host.
func TestKillAnything(t *testing.T) {
	guardian, daemon := regexp.MustCompile(`gorun worker --session \w+$`), "gorun worker --daemon"
	theGuardian := func(host int) victims {
		return func(c *cluster, _ int) []int {
			for _, p := range c.Host(host).Processes() {
				if guardian.MatchString(p.Args) {
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
		"launcher": {func(_ *cluster, gorun int) []int { return []int{gorun} }, -1, ""},
		"guardian": {theGuardian(1), 255, "gorun: error: host1: run: the guardian of the daemon was killed"},
		"daemon":   {the(2, daemon, 0), 255, "gorun: error: host2: run: the daemon was killed by signal 9"},
		"rank":     {the(2, python, 0), 137, "on host2 was killed by signal 9 (SIGKILL)"},
		// Nobody is left on the host who would know what the ranks have detached.
		"guardian and daemon":                         {both(theGuardian(2), the(2, daemon, 0)), 255, "gorun: error: host2: run: "},
		"guardian and daemon, without control groups": {both(theGuardian(2), the(2, daemon, 0)), 255, "gorun: error: host2: run: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClusterWith(t, 2, lab.Options{Cgroups: !strings.HasSuffix(name, "without control groups")})
			// Something that has neither the session, a parent nor the environment of the job.
			script := `import subprocess; subprocess.run(["sh", "-c", "env -i setsid sleep 1000 & exit 0"])` + busy
			cmd, stdout, stderr := c.command("-np", "4", "-H", "host1:2,host2:2", python, "-c", script)
			watched := &watch{buf: stdout}
			cmd.Stdout = watched
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			c.await("busy rank", func() bool { return watched.count("busy") == 4 })
			groups := c.cgroups()
			if c.hasCgroups() != (len(groups) == 2) {
				t.Errorf("the ranks of two hosts are in the control groups %v", groups)
			}
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
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			c.expectNothingLeft(10 * time.Second)
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				t.Fatal("gorun is still there")
			}
			if code := cmd.ProcessState.ExitCode(); code != test.code || !strings.Contains(stderr.String(), test.says) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, test.code, test.says, stderr)
			}
			c.await("end of the control groups", func() bool {
				return !slices.ContainsFunc(groups, func(dir string) bool { _, err := os.Stat(dir); return err == nil })
			})
		})
	}
}

// hasCgroups reports whether hosts may make control groups. All hosts see the same ones, whose processes have the same numbers.
func (c *cluster) hasCgroups() bool {
	return c.Host(1).Command(c.t.Context(), "sh", "-c", "d=$(mktemp -d /sys/fs/cgroup/gorun-test-XXXXXX) && rmdir $d").Run() == nil
}

// cgroups lists the control groups of gorun's making in which there are processes of the hosts, by their paths seen
// from here.
func (c *cluster) cgroups() (dirs []string) {
	for _, h := range c.Hosts() {
		all := h.Processes()
		for _, p := range all {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
			for line := range strings.Lines(string(text)) {
				group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
				dir := fmt.Sprintf("/proc/%d/root/sys/fs/cgroup%s", all[0].PID, group)
				if ok && strings.Contains(group, "/gorun-job-") && !slices.Contains(dirs, dir) {
					dirs = append(dirs, dir)
				}
			}
		}
	}
	return dirs
}

// TestPowerOff: a host that falls silent is noticed by its peers, and the job ends with its name.
func TestPowerOff(t *testing.T) {
	c := newCluster(t, 2)
	cmd, stdout, stderr := c.command("-np", "2", "-H", "host1,host2", python, "-c", busy)
	watched := &watch{buf: stdout}
	cmd.Stdout = watched
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.await("busy rank", func() bool { return watched.count("busy") == 2 })
	if err := c.Host(2).PowerOff(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(60 * time.Second):
		t.Fatal("gorun still waits for a host without power")
	}
	if code := cmd.ProcessState.ExitCode(); code != 255 || !strings.Contains(stderr.String(), "gorun: error: host2: run: silent for 30s, as host1 reports") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	c.expectNothingLeft(5 * time.Second)
}

// TestInterrupt is Ctrl-C, and kill: ranks elsewhere hear which of them it is.
func TestInterrupt(t *testing.T) {
	c := newCluster(t, 2)
	tells := `trap "echo interrupted; exit 3" INT; trap "echo terminated; exit 3" TERM; echo busy; while :; do sleep 0.05; done`
	for name, tc := range map[string]struct {
		program []string
		sig     syscall.Signal
		says    string
	}{
		"Python":            {[]string{python, "-c", busy}, syscall.SIGINT, "busy"},
		"handlers":          {[]string{"sh", "-c", tells}, syscall.SIGINT, "interrupted"},
		"handlers, by kill": {[]string{"sh", "-c", tells}, syscall.SIGTERM, "terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, stdout, stderr := c.command(append([]string{"-np", "2", "-H", "host1,host2"}, tc.program...)...)
			watched := &watch{buf: stdout}
			cmd.Stdout = watched
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			c.await("busy rank", func() bool { return watched.count("busy") == 2 })
			if err := cmd.Process.Signal(tc.sig); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			c.expectNothingLeft(time.Second)
			if code := cmd.ProcessState.ExitCode(); code != 128+int(tc.sig) {
				t.Errorf("exit code %d, want %d\n%s", code, 128+int(tc.sig), stderr)
			}
			if watched.count(tc.says) != 2 {
				t.Errorf("want %q of both ranks:\n%s", tc.says, stdout)
			}
		})
	}
}

// watch is a buffer that may be read while it is written.
type watch struct {
	mu  sync.Mutex
	buf *bytes.Buffer
}

func (w *watch) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

func (w *watch) count(s string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.buf.String(), s)
}

// TestMistakes: what goes wrong on hosts is said in one line that names the host and the step, one line
// says what to do, and the exit code is the README's.
func TestMistakes(t *testing.T) {
	c := newCluster(t, 3)
	// host3 no longer takes the launcher's key.
	if _, err := c.Host(3).Exec(t.Context(), "sh", "-c", "echo > /root/.ssh/authorized_keys"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		args   []string
		code   int
		stderr []string
	}{
		{"unknown host", []string{"-H", "host1,nowhere", "true"}, 255,
			[]string{`(?m)^gorun: error: nowhere: resolve: `, `(?m)^gorun: hint: `}},
		{"refused key", []string{"-H", "host1,host3", "true"}, 255,
			[]string{`(?m)^gorun: error: host3: authenticate: `, `(?m)^gorun: hint: `}},
		{"two hosts, two reasons", []string{"-H", "host1,host3,nowhere", "true"}, 255,
			[]string{`(?m)^gorun: error: 2 of 3 hosts failed`, `(?m)^    host3 +authenticate +`, `(?m)^    nowhere +resolve +`}},
		{"no program", []string{"-H", "host1,host2", "no-such-python", "x.py"}, 127,
			[]string{`(?m)^gorun: error: rank [01] on host[12] could not start: .*no-such-python`, `(?m)^gorun: hint: install the program on host[12]`}},
		{"no script", []string{"-H", "host1,host2", python, "missing.py"}, 2,
			[]string{`(?m)^gorun: error: rank [01] on host[12] exited with status 2`, `(?m)^gorun: hint: gorun does not copy programs`}},
		{"no directory", []string{"-H", "host1,host2", "--wdir", "/no/such/dir", "true"}, 1,
			[]string{`(?m)^gorun: error: rank [01] on host[12] could not start: .*/no/such/dir`, `(?m)^gorun: hint: make it on host[12]`}},
		{"refused port", []string{"-H", "host1", "-p", "2", "true"}, 255,
			[]string{`(?m)^gorun: error: host1: connect: .*refused`}},
	} {
		r := c.gorun(tc.args...)
		if r.code != tc.code {
			t.Errorf("%s: exit code %d, want %d", tc.name, r.code, tc.code)
		}
		for _, want := range tc.stderr {
			if !regexp.MustCompile(want).MatchString(r.stderr) {
				t.Errorf("%s: no match for %s in\n%s", tc.name, want, r.stderr)
			}
		}
	}
}

// TestUploadOnce: the binary travels to a host the first time only, and secrets never show in argv.
func TestUploadOnce(t *testing.T) {
	c := newCluster(t, 1)
	count := func() string {
		out, err := c.Host(1).Exec(t.Context(), "sh", "-c", "stat -c '%i %Y' /root/.cache/gorun/*/gorun; ls /root/.cache/gorun | wc -l")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if r := c.gorun("-H", "host1", "true"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	first := count()
	if r := c.gorun("-H", "host1", "true"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	if second := count(); second != first {
		t.Errorf("cache was\n%sand is\n%s", first, second)
	}
	r := c.gorun("-H", "host1", "sh", "-c", "cat /proc/*/cmdline | tr '\\0' ' '")
	if r.code != 0 || strings.Contains(r.stdout, "HOROVOD_RANK=") {
		t.Errorf("exit code %d, command lines: %s", r.code, r.stdout)
	}
}
