//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// notified is what systemd would hear of a service of Type=notify.
type notified struct {
	path string
	mu   sync.Mutex
	said []string
}

// newNotified listens as systemd does, where hosts see it.
func newNotified(t *testing.T, path string) *notified {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	n := &notified{path: path}
	var listening sync.WaitGroup
	listening.Go(func() {
		for buf := make([]byte, 4096); ; {
			size, err := conn.Read(buf)
			if err != nil {
				return
			}
			n.mu.Lock()
			n.said = append(n.said, string(buf[:size]))
			n.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		conn.Close()
		listening.Wait()
	})
	return n
}

// expect waits until so much was said since it was last called, and no more.
func (n *notified) expect(s *lasting, want ...string) {
	s.t.Helper()
	s.await("word to systemd", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.said) >= len(want)
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.said, want) {
		s.t.Errorf("systemd heard %q, want %q", n.said, want)
	}
	n.said = nil
}

// TestUpgrade: the binary of standing daemons is replaced and each of them reloaded, as their unit for systemd does it, while
// a job runs. The job goes on with the ranks, daemons and launcher that it has, new jobs are started by the new binary,
// and a daemon that is stopped at last waits for the job. systemd hears of each step.
func TestUpgrade(t *testing.T) {
	s := newLasting(t, 2)
	dir := s.shared("upgrade")
	s.daemon = filepath.Join(dir, "gorun")
	if err := copyFile(s.daemon, s.binary); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(dir, "newer")
	build := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-ldflags", "-X main.version=newer", "-o", newer, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Makefile does it; tests with the race detector have 1
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	systemd := make([]*notified, 2)
	const ready = "READY=1\nSTATUS=takes jobs at [::]:7575, 2 slots"
	reload := func(i int) {
		t.Helper()
		if err := s.hosts[i].Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if err := s.hosts[i].Wait(); err != nil {
			t.Errorf("the daemon of host%d: %v\n%s", i+1, err, s.logs[i].buf)
		}
		s.start(i)
	}
	for i := range systemd {
		systemd[i] = newNotified(t, filepath.Join(dir, fmt.Sprint("notify", i+1)))
		s.env = []string{"NOTIFY_SOCKET=" + systemd[i].path}
		reload(i)
		systemd[i].expect(s, ready)
	}
	s.await("cluster", func() bool { return strings.Count(s.ps(), "0 of 2") == 2 })

	cmd, stdout, stderr := s.command(slices.Concat(s.args, []string{"--no-tag-output", "-np", "3", python, "-c", strings.ReplaceAll(steps, "4 * i + 6", "3 * i + 3")})...)
	working := &watch{buf: stdout}
	cmd.Stdout = working
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() }) // whatever comes
	s.await("training", func() bool { return working.count("step 20\n") == 3 })

	if err := os.Rename(newer, s.daemon); err != nil {
		t.Fatal(err)
	}
	for i := range systemd {
		s.env = []string{"NOTIFY_SOCKET=" + systemd[i].path}
		reload(i)
		systemd[i].expect(s, "STOPPING=1\nSTATUS=leaves its jobs to the next daemon", ready)
	}
	launch := func(binary string, args ...string) result {
		var stdout, stderr strings.Builder
		cmd := s.Launcher().Command(t.Context(), binary, slices.Concat(s.args, args)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Run()
		return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
	// host1 and host2 keep the slots of the running job; the fourth is for the next one.
	s.await("word of its slots", func() bool {
		text := s.ps()
		return strings.Contains(text, "2 of 2") && strings.Contains(text, "1 of 2")
	})
	if r := launch(s.daemon, "-np", "1", "--no-tag-output", "sh", "-c", "uname -n; readlink /proc/$PPID/exe"); r.code != 0 || r.stdout != "host2\n"+s.daemon+"\n" {
		t.Errorf("a job of the new binary: exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	if r := launch(s.binary, "-np", "1", "true"); r.code == 0 || !strings.Contains(r.stderr, "the daemon is gorun newer, this is ") || !strings.Contains(r.stderr, "gorun: hint: run the same gorun binary on every host") {
		t.Errorf("a job of the old binary: exit code %d\n%s", r.code, r.stderr)
	}

	if n := working.count("step 399\n"); n > 0 {
		t.Fatal("the job is over before a daemon could be drained")
	}
	if err := s.hosts[1].Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.await("drained daemon", func() bool { return strings.Contains(s.ps(), "takes no more jobs") })
	systemd[1].expect(s, "STOPPING=1\nSTATUS=waits for its jobs to end")
	if r := launch(s.daemon, "-np", "3", "true"); r.code == 0 || !strings.Contains(r.stderr, "no room for 3 ranks") {
		t.Errorf("a host that is drained still counts: exit code %d\n%s", r.code, r.stderr)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stderr, stdout)
	}
	if err := s.hosts[1].Wait(); err != nil {
		t.Errorf("the drained daemon: %v\n%s", err, s.logs[1].buf)
	}
	if n := working.count("begins "); n != 3 {
		t.Errorf("%d ranks began", n)
	}
	for i := range 400 {
		if n := working.count(fmt.Sprintf("step %d\n", i)); n != 3 {
			t.Errorf("step %d was printed %d times", i, n)
		}
	}
	s.env = nil
	s.start(1)
	s.expectIdle()
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
