//go:build linux

package lab_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"gorun/contrib/lab"
)

// ownerVariable makes the test binary own a lab until it is killed; see TestOwnerKilled.
const ownerVariable = "LAB_TEST_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) != "" {
		ownLab()
	}
	goleak.VerifyTestMain(m)
}

func ownLab() {
	l, err := lab.New(context.Background(), 1, lab.Options{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(l.State()); err != nil {
		os.Exit(1)
	}
	select {}
}

// TestOwnerKilled shows that a lab does not outlive the process that made it, and that another process
// may use it while it lives.
func TestOwnerKilled(t *testing.T) {
	t.Parallel()
	if err := lab.Check(); err != nil {
		t.Skip(err)
	}
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	var s lab.State
	err = json.NewDecoder(out).Decode(&s)
	if err == nil {
		var l *lab.Lab
		if l, err = lab.Attach(s); err == nil {
			if got := run(t, l.Launcher(), "ssh", "host1", "hostname"); got != "host1" {
				t.Errorf("host1 says it is %q", got)
			}
			err = l.Host(1).Freeze()
		}
	}
	owner.Process.Kill()
	owner.Wait()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		for _, p := range []lab.Identity{s.Rack, s.Hosts[0].First, s.Hosts[1].First} {
			if p.Alive() {
				return fmt.Sprintf("process %d lives on", p.PID)
			}
		}
		return ""
	})
	if _, err := lab.Attach(s); err == nil {
		t.Error("a lab that is gone can be used")
	}
}

// eventually polls until f finds nothing wrong.
func eventually(t *testing.T, f func() string) {
	t.Helper()
	var wrong string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if wrong = f(); wrong == "" {
			return
		}
	}
	t.Fatal(wrong)
}

func run(t *testing.T, h *lab.LabHost, args ...string) string {
	t.Helper()
	out, err := h.Exec(t.Context(), args[0], args[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func TestHostsAreHosts(t *testing.T) {
	t.Parallel()
	start := time.Now()
	l := lab.ForTest(t, 3, lab.Options{})
	t.Logf("3 hosts and a launcher up in %v", time.Since(start))

	for i, h := range l.Hosts() {
		name := fmt.Sprintf("host%d", i+1)
		if h.Name() != name {
			t.Errorf("host %d is called %s", i+1, h.Name())
		}
		// Over real ssh, by name, without a question about its key.
		script := `hostname; whoami; echo "$HOME"; ls -A /root /home /dev/shm | grep -v : | xargs; ls /sys/class/net | grep -v lo; touch /usr/x 2>&1 | tail -c 22`
		got := run(t, l.Launcher(), "ssh", name, script)
		want := name + "\nroot\n/root\n.ssh\neth0\nRead-only file system"
		if got != want {
			t.Errorf("on %s:\n%s\nwant:\n%s", name, got, want)
		}
	}
	if !reachable(t, l.Host(1), "host3") {
		t.Error("host1 does not reach host3")
	}
	if out, err := l.Host(1).Exec(t.Context(), "ip", "route", "get", "192.0.2.1"); err == nil {
		t.Errorf("there is a way out: %s", out)
	}
	if out, err := l.Host(1).Exec(t.Context(), "ssh", "-oBatchMode=yes", "-oStrictHostKeyChecking=no", "host2", "true"); err == nil {
		t.Errorf("a host has the launcher's key: %s", out)
	}
}

func TestSharedDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() // in /tmp, which hosts have for themselves
	l := lab.ForTest(t, 2, lab.Options{Share: []string{dir}})
	run(t, l.Host(1), "sh", "-c", "echo there > "+dir+"/file")
	if got := run(t, l.Host(2), "cat", dir+"/file"); got != "there" {
		t.Errorf("host2 reads %q", got)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(got) != "there\n" {
		t.Errorf("the machine reads %q, %v", got, err)
	}
	if wd, _ := os.Getwd(); run(t, l.Host(2), "test", "-e", wd+"/lab_test.go") != "" {
		t.Error("the module is not shared")
	}
	eventually(t, func() string { return strings.Join(l.Host(2).Leftovers(), "\n") })
}

func TestKill(t *testing.T) {
	t.Parallel()
	l := lab.ForTest(t, 2, lab.Options{})
	h := l.Host(1)
	sleep := h.Command(t.Context(), "sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- sleep.Wait() }()
	eventually(t, func() string {
		if len(h.Processes()) == 2 {
			return ""
		}
		return fmt.Sprint(h.Processes())
	})
	if err := h.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if h.Running() || unix.Kill(sleep.Process.Pid, 0) == nil {
		t.Error("something lives on")
	}
	if _, err := h.Exec(t.Context(), "true"); err == nil || !strings.Contains(err.Error(), "host1 is off") {
		t.Errorf("a command on a host that is off: %v", err)
	}
	// The other host does not mind, and the dead one can be switched on again.
	if err := h.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, l.Launcher(), "ssh", "host1", "true")
	if err := h.PowerOff(); err != nil {
		t.Fatal(err)
	}
}

func TestFreezeAndThaw(t *testing.T) {
	t.Parallel()
	l := lab.ForTest(t, 2, lab.Options{})
	h := l.Host(1)
	ticks := h.Command(t.Context(), "sh", "-c", "while :; do echo; sleep 0.01; done")
	out, err := ticks.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := ticks.Start(); err != nil {
		t.Fatal(err)
	}
	if err := h.Freeze(); err != nil {
		t.Fatal(err)
	}
	for _, p := range h.Processes() {
		if p.State != 'T' && p.State != 'Z' && p.State != 'D' { // D: it waits for a child that is stopped
			t.Errorf("it is not frozen: %v", p)
		}
	}
	if reachable(t, l.Host(2), "host1") {
		t.Error("a frozen host answers")
	}
	if err := h.Thaw(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string { // kernels ask for its hardware address once a second
		if !reachable(t, l.Host(2), "host1") {
			return "a thawed host does not answer"
		}
		return ""
	})
	// More than what the pipe can have held from before.
	if n, err := out.Read(make([]byte, 100)); n == 0 {
		t.Error(err)
	}
	ticks.Process.Kill()
	ticks.Wait()
	eventually(t, func() string { return strings.Join(h.Leftovers(), "\n") })
}

func TestCutAndHeal(t *testing.T) {
	t.Parallel()
	l := lab.ForTest(t, 2, lab.Options{})
	for _, step := range []struct {
		name string
		do   func() error
		want bool
	}{
		{"at first", func() error { return nil }, true},
		{"cut", l.Host(2).Cut, false},
		{"healed", l.Host(2).Heal, true},
		{"moved", func() error { return l.Host(2).SetAddress(netip.MustParseAddr("10.77.0.99")) }, true},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := reachable(t, l.Host(1), "host2"); got != step.want {
			t.Errorf("%s: host2 reachable: %v", step.name, got)
		}
	}
	if reachable(t, l.Host(1), "10.77.0.2") {
		t.Error("the old address answers")
	}
	if err := l.Host(1).SetAddress(netip.MustParseAddr("192.168.0.1")); err == nil {
		t.Error("an address outside of the lab was accepted")
	}
}

// reachable connects to the ssh port of a host, in as short a time as a busy machine allows.
func reachable(t *testing.T, from *lab.LabHost, name string) bool {
	t.Helper()
	_, err := from.Exec(t.Context(), "timeout", "2", "bash", "-c", "</dev/tcp/"+name+"/22")
	return err == nil
}

func TestRate(t *testing.T) {
	t.Parallel()
	l := lab.ForTest(t, 2, lab.Options{})
	const rate, size = 80_000_000, 4 << 20 // 10 MB/s, 4 MiB
	if err := l.Host(1).SetLink(lab.Link{Rate: rate}); err != nil {
		t.Fatal(err)
	}
	// Each way, because each end of the cable has its own limit.
	for _, command := range []string{"head -c %d /dev/zero | ssh host1 'cat >/dev/null'", "ssh host1 'head -c %d /dev/zero' >/dev/null"} {
		start := time.Now()
		run(t, l.Launcher(), "sh", "-c", fmt.Sprintf(command, size))
		took := time.Since(start)
		t.Logf("4 MiB at 80 Mbit/s in %v", took)
		// The bucket of 320 kB may go at once. How long it takes beyond that is up to the machine.
		if least := time.Duration(float64(size-320_000) * 8 / rate * float64(time.Second)); took < least {
			t.Errorf("%s took %v, want at least %v", command, took, least)
		}
	}
	if err := l.Host(1).SetLink(lab.Link{}); err != nil {
		t.Fatal(err)
	}
}

func TestLeftovers(t *testing.T) {
	t.Parallel()
	l := lab.ForTest(t, 1, lab.Options{})
	h := l.Host(1)
	if left := h.Leftovers(); left != nil {
		t.Fatalf("a fresh host has %q", left)
	}
	script := `import os, socket, time
a = socket.socket(); a.bind(("127.0.0.1", 7001)); a.listen()
b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); b.bind(("127.0.0.1", 7002))
c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); c.bind("\0left"); c.listen()
os.makedirs("/root/.cache/gorun/hash")
for f in "/tmp/t", "/dev/shm/s", "/root/r", "/root/.cache/gorun/hash/gorun": open(f, "w")
print(flush=True); time.sleep(1000)`
	cmd := h.Command(t.Context(), "/usr/bin/python3", "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 1))
	list := h.Leftovers()
	left := strings.Join(list, "\n")
	for _, want := range []string{"/usr/bin/python3", "port 7001", "port 7002", "unix socket @left", "file /tmp/t", "file /dev/shm/s", "file /root/r"} {
		if !strings.Contains(left, want) {
			t.Errorf("%q is not found in:\n%s", want, left)
		}
	}
	if len(list) != 7 {
		t.Errorf("found %d things, want 7:\n%s", len(list), left)
	}
	cmd.Process.Kill()
	cmd.Wait()
}

// TestCloseLeavesNothing looks at what a lab could leave on the machine.
func TestCloseLeavesNothing(t *testing.T) {
	if err := lab.Check(); err != nil {
		t.Skip(err)
	}
	look := func() string {
		mounts, _ := os.ReadFile("/proc/self/mountinfo")
		links, _ := os.ReadDir("/sys/class/net")
		var s strings.Builder
		s.Write(mounts)
		for _, link := range links {
			fmt.Fprintln(&s, "link", link.Name())
		}
		return s.String()
	}
	before := look()
	l, err := lab.New(t.Context(), 2, lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, h := range append(l.Hosts(), l.Launcher()) {
		pids = append(pids, h.Processes()[0].PID)
	}
	if err := l.Host(1).Freeze(); err != nil { // a stopped process must end as well
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	for _, pid := range pids {
		if unix.Kill(pid, 0) == nil {
			t.Errorf("process %d is left", pid)
		}
	}
	if after := look(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, hosts := range []int{-1, 0, 201} {
		if _, err := lab.New(context.Background(), hosts, lab.Options{}); err == nil {
			t.Errorf("%d hosts were accepted", hosts)
		}
	}
	for _, dir := range []string{"/", "/run", "/run/x", "/nowhere"} {
		if _, err := lab.New(context.Background(), 1, lab.Options{Share: []string{dir}}); err == nil {
			t.Errorf("sharing %s was accepted", dir)
		}
	}
}
