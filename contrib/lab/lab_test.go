//go:build linux

package lab_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"gorun/contrib/lab"
	"gorun/contrib/must"
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
	must.Do(t, err)
	must.Do(t, owner.Start())
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
	must.Do(t, err)
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
	must.Do(t, err)
	return strings.TrimSpace(out)
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
	must.Do(t, err)
	must.Do(t, cmd.Start())
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
	must.Do(t, err)
	var pids []int
	for _, h := range append(l.Hosts(), l.Launcher()) {
		pids = append(pids, h.Processes()[0].PID)
	}
	if err := l.Host(1).Freeze(); err != nil { // a stopped process must end as well
		t.Fatal(err)
	}
	must.Do(t, l.Close())
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
