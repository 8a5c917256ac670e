package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// machine is a lab host whose programs are run by a systemd of its own, with the unit in contrib/systemd installed as
// that says.
type machine struct {
	*e2etest.Cluster
	pid  string   // of its systemd
	args []string // of a launch
}

const unitFile = "gorun-worker@.service"

const unit = "gorun-worker@alice"

const clusterKey = e2etest.ClusterKey

// newMachine boots a machine and installs gorun on it.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := bootMachine(t, lab.Options{Cgroups: true})
	m.install()
	return m
}

// bootMachine returns a machine that has no gorun yet. Its user alice has nothing to do.
func bootMachine(t *testing.T, options lab.Options) *machine {
	t.Helper()
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		t.Skip("no systemd: apt-get install systemd")
	}
	t.Parallel()
	c := e2etest.NewClusterWith(t, 1, options)
	if !c.HasCgroups() {
		t.Skip("may not make control groups")
	}
	out, err := c.Host(1).Exec(t.Context(), "mktemp", "-d", "/sys/fs/cgroup/gorun-test-XXXXXX")
	must.Do(t, err)
	group := strings.TrimSpace(out)
	m := &machine{Cluster: c, args: []string{"--cluster", "host1", "--cluster-key-file", "/root/.ssh/key"}}
	boot := c.Host(1).Command(t.Context(), "unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts", "--", "sh", "-euc",
		`chmod 755 "$0"; echo 0 >"$0/cgroup.procs"; exec unshare --cgroup sh "$@"`, group, filepath.Join(c.Root, "contrib/e2e/cluster/testdata/systemd.sh"))
	var said bytes.Buffer
	boot.Stdout, boot.Stderr = &said, &said
	must.Do(t, boot.Start())
	t.Cleanup(func() {
		boot.Process.Kill()
		boot.Wait()
		if t.Failed() {
			t.Logf("systemd: %s", &said)
		}
		remove := []string{"find", group, "-depth", "-type", "d", "-delete"} // its processes are gone when the kernel finds the time
		m.Await("end of the machine", func() bool { return c.Host(1).Command(context.Background(), remove[0], remove[1:]...).Run() == nil })
	})
	children := fmt.Sprintf("/proc/%d/task/%[1]d/children", boot.Process.Pid)
	m.Await("first process of the machine", func() bool {
		text, _ := os.ReadFile(children)
		m.pid = strings.TrimSpace(string(text))
		return m.pid != ""
	})
	m.Await("systemd", func() bool {
		out, _ := m.in("systemctl", "is-active", "basic.target").CombinedOutput()
		return string(out) == "active\n"
	})
	c.Shell(c.Launcher(), "umask 077; echo '"+clusterKey+"' >/root/.ssh/key")
	return m
}

// install does what the unit's comment says about its installation.
func (m *machine) install() {
	t := m.T
	t.Helper()
	dir := m.Shared("systemd")
	for name, text := range map[string]string{"cluster.key": clusterKey, unitFile: m.unit()} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	must.Do(t, os.Symlink(m.Binary, filepath.Join(dir, "gorun")))
	var steps strings.Builder
	for line := range strings.Lines(m.unit()) {
		if step, ok := strings.CutPrefix(line, "#   "); ok {
			steps.WriteString(step)
		}
	}
	m.run("sh", "-euxc", "cd '"+dir+"'\n"+steps.String())
}

// unit is its text.
func (m *machine) unit() string {
	m.T.Helper()
	text := must.Read(m.T, filepath.Join(m.Root, "contrib/systemd", unitFile))
	return string(text)
}

// in prepares a command that root enters on the machine.
func (m *machine) in(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.T.Context(), "nsenter", slices.Concat([]string{"-t", m.pid, "-a", "--"}, args)...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	return cmd
}

func (m *machine) run(args ...string) string {
	m.T.Helper()
	out, err := m.in(args...).CombinedOutput()
	if err != nil {
		m.T.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

// show is a property of the unit.
func (m *machine) show(property string) string {
	m.T.Helper()
	return strings.TrimSpace(m.run("systemctl", "show", "--value", "-p", property, unit))
}

// launch starts a job from another host.
func (m *machine) launch(args ...string) (cmd *lab.Cmd, stdout, stderr *e2etest.Watch) {
	m.T.Helper()
	cmd, stdout, stderr = m.Command(slices.Concat(m.args, args)...)
	cmd.Dir = "/" // alice's jobs may not go where the tests are
	must.Do(m.T, cmd.Start())
	m.T.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() }) // whatever comes
	return cmd, stdout, stderr
}

// TestSystemd: a real systemd runs the unit. A start is over when the daemon takes jobs; jobs outlive a reload and a
// crash of the daemon; restart and stop wait for them; nothing stays behind.
func TestSystemd(t *testing.T) {
	m := newMachine(t)
	const ready = "takes jobs at [::]:7575, 8 slots"
	if out := m.run("systemctl", "status", "--no-pager", unit); !strings.Contains(out, "active (running)") || !strings.Contains(out, `Status: "`+ready+`"`) {
		t.Errorf("systemctl status:\n%s", out)
	}
	// At once, because the start was over when it takes jobs.
	who := func() {
		t.Helper()
		cmd, stdout, stderr := m.launch("--no-tag-output", "-np", "2", "sh", "-c", "echo $(id -un) $HOME $(cat /proc/self/cgroup)")
		if err := cmd.Wait(); err != nil || stdout.Count("alice /home/alice ") != 2 || stdout.Count("/"+unit+".service") != 2 {
			t.Errorf("a job as alice: %v\n%s\n%s", err, stderr, stdout)
		}
	}
	who()
	if out := m.run("systemd-analyze", "verify", "--man=no", unit+".service"); out != "" {
		t.Errorf("systemd-analyze verify:\n%s", out)
	}

	const over = "/tmp/over"
	program := []string{"-np", "1", "--no-tag-output", "sh", "-c", "echo begins; until [ -e " + over + " ]; do echo works; sleep 0.05; done; echo ends"}
	cmd, stdout, stderr := m.launch(program...)
	detach, _, _ := m.launch(slices.Concat([]string{"--detach"}, program)...)
	must.Do(t, detach.Wait())
	goesOn := func(after string) {
		t.Helper()
		n := stdout.Count("works\n")
		m.Await("work after "+after, func() bool { return stdout.Count("works\n") > n })
	}
	goesOn("the start")
	for _, end := range [][]string{{"systemctl", "reload", unit}, {"systemctl", "kill", "--kill-whom=main", "--signal=KILL", unit}} {
		pid := m.show("MainPID")
		m.run(end...)
		m.Await("daemon", func() bool {
			next := m.show("MainPID")
			return next != "0" && next != pid && m.show("ActiveState") == "active" && m.show("StatusText") == ready
		})
		goesOn(strings.Join(end, " "))
	}

	waits := func(verb string) {
		t.Helper()
		ended := make(chan error, 1)
		go func() {
			out, err := m.in("systemctl", verb, unit).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			ended <- err
		}()
		m.Await("word of what it waits for", func() bool { return m.show("StatusText") == "waits for its jobs to end" })
		goesOn("systemctl " + verb)
		select {
		case err := <-ended:
			t.Fatalf("systemctl %s does not wait for the job: %v", verb, err)
		default:
		}
		m.run("touch", over)
		if err := cmd.Wait(); err != nil || stdout.Count("begins\n") != 1 || stdout.Count("ends\n") != 1 {
			t.Errorf("a job in a systemctl %s: %v\n%s\n%s", verb, err, stderr, stdout)
		}
		if err := <-ended; err != nil {
			t.Errorf("systemctl %s: %v", verb, err)
		}
		m.run("rm", over)
	}
	waits("restart")
	who()
	logs, detached, _ := m.Command(slices.Concat([]string{"logs"}, m.args, []string{"host1/1"})...)
	if err := logs.Run(); err != nil || strings.Count(detached.String(), "begins\n") != 1 || strings.Count(detached.String(), "ends\n") != 1 {
		t.Errorf("the detached job: %v\n%s", err, detached)
	}

	cmd, stdout, stderr = m.launch(program...)
	goesOn("the restart")
	waits("stop")
	if state, result := m.show("ActiveState"), m.show("Result"); state != "inactive" || result != "success" {
		t.Errorf("stopped: %s, %s", state, result)
	}
	if left := m.run("ps", "-e", "-o", "args="); strings.Contains(left, "gorun") {
		t.Errorf("left behind:\n%s", left)
	}
	if left := m.run("find", "/sys/fs/cgroup", "-path", "*alice*"); left != "" {
		t.Errorf("left behind:\n%s", left)
	}
	journal := m.run("journalctl", "--no-pager", "-o", "cat", "-u", unit)
	for _, want := range []string{`msg="takes jobs" at=[::]:7575`, `msg="leaves its jobs to the daemon that comes next"`, `msg="takes over a job"`, `msg="stops when its jobs have ended`} {
		if !strings.Contains(journal, want) {
			t.Errorf("the journal has no %q:\n%s", want, journal)
		}
	}
}

// TestKeyHiddenFromRanks: the daemon and the launcher of a detached job run as the user whose ranks could otherwise read the
// cluster's key: in its file, or in their memory. What has no key is as open as ever.
func TestKeyHiddenFromRanks(t *testing.T) {
	m := newMachine(t)
	detach, _, stderr := m.launch("--detach", "-np", "1", "sleep", "1000")
	if err := detach.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	cmd, stdout, stderr := m.launch("-np", "1", "--no-tag-output", "sh", "-c", `
		cat /etc/gorun/cluster.key && echo it reads "the file"
		for process in /proc/[0-9]*; do
			grep -q "^Uid:.$(id -u)" $process/status || continue
			memory=hidden; (: <$process/mem) && memory=open
			environment=hidden; cat $process/environ >/dev/null && environment=open
			echo "$memory $environment $(tr '\0' ' ' <$process/cmdline)"
		done 2>/dev/null`)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	seen := map[string]int{}
	for line := range strings.Lines(stdout.String()) {
		words := strings.Fields(line)
		if len(words) < 3 {
			continue
		}
		state, command := strings.Join(words[:2], " "), strings.Join(words[2:], " ")
		what := "another"
		switch {
		case strings.Contains(command, "worker --user alice"):
			what = "daemon"
		case strings.HasSuffix(command, "--detach -np 1 sleep 1000"):
			what = "launcher"
		case strings.HasSuffix(command, "worker --resumable"):
			what = "supervisor"
		}
		seen[what+" "+state]++
	}
	if strings.Contains(stdout.String(), "it reads the file") || seen["daemon hidden hidden"] != 1 || seen["launcher hidden hidden"] != 1 ||
		seen["daemon open open"]+seen["launcher open open"] > 0 || seen["supervisor open open"] == 0 {
		t.Errorf("a rank sees %v:\n%s", seen, stdout)
	}
	if journal := m.run("journalctl", "--no-pager", "-o", "cat", "-u", unit); strings.Contains(journal, "jobs can read the key") || strings.Contains(journal, "runs as root") {
		t.Errorf("the daemon warns:\n%s", journal)
	}
	m.run("chown", "alice", "/etc/gorun/cluster.key") // as before there was --user
	m.run("systemctl", "reload", unit)
	m.Await("warning", func() bool {
		return strings.Contains(m.run("journalctl", "--no-pager", "-o", "cat", "-u", unit), "jobs can read the key")
	})
	stop, _, _ := m.Command(slices.Concat([]string{"stop"}, m.args, []string{"host1/1"})...)
	must.Report(t, stop.Run())
	m.run("systemctl", "stop", unit)
}

// TestSystemdMistake: a mistake in worker.conf is in the journal, and the unit starts when it is mended, however often
// it was tried.
func TestSystemdMistake(t *testing.T) {
	m := newMachine(t)
	m.run("sh", "-c", "echo GORUN_WORKER=--slits >/etc/gorun/worker.conf")
	for range 8 {
		if out, err := m.in("systemctl", "restart", unit).CombinedOutput(); err == nil || !strings.Contains(string(out), "exited with error code") {
			t.Errorf("a start with a mistake: %v\n%s", err, out)
		}
	}
	if journal := m.run("journalctl", "--no-pager", "-o", "cat", "-u", unit); !strings.Contains(journal, "gorun: hint: did you mean --slots?") {
		t.Errorf("the journal says nothing of the mistake:\n%s", journal)
	}
	m.run("sh", "-c", "echo GORUN_WORKER=--slots 3 >/etc/gorun/worker.conf")
	m.Await("daemon", func() bool { return m.show("StatusText") == "takes jobs at [::]:7575, 3 slots" })
}

// TestSystemdSecondCluster: a second daemon of the unit belongs to another cluster, by a file of its own.
func TestSystemdSecondCluster(t *testing.T) {
	m := newMachine(t)
	key := e2etest.AnotherKey
	m.run("sh", "-euc", `install -m 600 /dev/null /etc/gorun/bob.key
		echo "$0" >/etc/gorun/bob.key
		echo GORUN_WORKER_KEY=/etc/gorun/bob.key >/etc/gorun/worker-bob.conf
		echo 'GORUN_WORKER=--listen :7585 --join host1 --slots 2' >>/etc/gorun/worker-bob.conf
		systemctl enable --now gorun-worker@bob`, key)
	if got := strings.TrimSpace(m.run("systemctl", "show", "--value", "-p", "StatusText", "gorun-worker@bob")); got != "takes jobs at [::]:7585, 2 slots" {
		t.Errorf("the second daemon: %s", got)
	}
	if got := m.show("StatusText"); got != "takes jobs at [::]:7575, 8 slots" {
		t.Errorf("the first daemon: %s", got)
	}
	m.Shell(m.Launcher(), "umask 077; echo \""+key+"\" >/root/.ssh/bob")
	first := m.args
	for cluster, want := range map[string]string{"host1": "alice", "host1:7585": "bob"} {
		for file, owner := range map[string]string{"/root/.ssh/key": "alice", "/root/.ssh/bob": "bob"} {
			m.args = []string{"--cluster", cluster, "--cluster-key-file", file}
			cmd, stdout, stderr := m.launch("-np", "2", "--no-tag-output", "id", "-un")
			err := cmd.Wait()
			if accepted := owner == want; accepted != (err == nil) || accepted != (stdout.Count(want+"\n") == 2) || accepted == (stderr.Count("authenticate") > 0) {
				t.Errorf("%s with the key of %s: %v\n%s\n%s", cluster, owner, err, stdout, stderr)
			}
		}
	}
	m.args = first
	m.run("systemctl", "stop", unit, "gorun-worker@bob")
}
