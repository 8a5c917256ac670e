package cluster

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

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
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
	must.Do(t, err)
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

// expect waits until so much was written since it was last called, and no more.
func (n *notified) expect(s *e2etest.Lasting, want ...string) {
	s.T.Helper()
	s.Await("word to systemd", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.said) >= len(want)
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.said, want) {
		s.T.Errorf("systemd heard %q, want %q", n.said, want)
	}
	n.said = nil
}

// TestUpgrade: the binary of resident daemons is replaced and each of them reloaded, as their unit for systemd does it,
// while a job runs. The job goes on with the ranks, daemons and launcher that it has, new jobs are started by the new
// binary, and a daemon that is stopped at last waits for the job. systemd hears of each step.
func TestUpgrade(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	dir := s.Shared("upgrade")
	s.Daemon = filepath.Join(dir, "gorun")
	must.Do(t, copyFile(s.Daemon, s.Binary))
	newer := filepath.Join(dir, "newer")
	build := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-ldflags", "-X main.version=newer", "-o", newer, "./cmd/gorun")
	build.Dir = s.Root
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Makefile does it
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	systemd := make([]*notified, 2)
	const ready = "READY=1\nSTATUS=takes jobs at [::]:7575, 2 slots"
	reload := func(i int) {
		t.Helper()
		must.Do(t, s.Daemons[i].Process.Signal(syscall.SIGHUP))
		if err := s.Daemons[i].Wait(); err != nil {
			t.Errorf("the daemon of host%d: %v\n%s", i+1, err, s.Logs[i])
		}
		s.Start(i)
	}
	for i := range systemd {
		systemd[i] = newNotified(t, filepath.Join(dir, fmt.Sprint("notify", i+1)))
		s.Env = []string{"NOTIFY_SOCKET=" + systemd[i].path}
		reload(i)
		systemd[i].expect(s, ready)
	}
	s.Await("cluster", func() bool { return strings.Count(s.Ps(), "0 of 2") == 2 })

	cmd, stdout, stderr := s.Begin(3, "step 20\n", slices.Concat(s.Args, []string{"--no-tag-output", "-np", "3", e2etest.Python, "-c", strings.ReplaceAll(steps, "4 * i + 6", "3 * i + 3")})...)

	must.Do(t, os.Rename(newer, s.Daemon))
	for i := range systemd {
		s.Env = []string{"NOTIFY_SOCKET=" + systemd[i].path}
		reload(i)
		systemd[i].expect(s, "STOPPING=1\nSTATUS=leaves its jobs to the next daemon", ready)
	}
	launch := func(binary string, args ...string) e2etest.Result {
		var stdout, stderr strings.Builder
		cmd := s.Launcher().Command(t.Context(), binary, slices.Concat(s.Args, args)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Run()
		return e2etest.Result{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
	}
	// host1 and host2 keep the slots of the running job; the fourth is for the next one.
	s.Await("word of its slots", func() bool {
		text := s.Ps()
		return strings.Contains(text, "2 of 2") && strings.Contains(text, "1 of 2")
	})
	if r := launch(s.Daemon, "-np", "1", "--no-tag-output", "sh", "-c", "uname -n; readlink /proc/$PPID/exe"); r.Code != 0 || r.Stdout != "host2\n"+s.Daemon+"\n" {
		t.Errorf("a job of the new binary: exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := launch(s.Binary, "-np", "1", "true"); r.Code == 0 || !strings.Contains(r.Stderr, "the daemon is gorun newer, this is ") || !strings.Contains(r.Stderr, "gorun: hint: run the same gorun binary on every host") {
		t.Errorf("a job of the old binary: exit code %d\n%s", r.Code, r.Stderr)
	}

	if n := stdout.Count("step 399\n"); n > 0 {
		t.Fatal("the job is over before a daemon could be drained")
	}
	must.Do(t, s.Daemons[1].Process.Signal(syscall.SIGTERM))
	s.Await("drained daemon", func() bool { return strings.Contains(s.Ps(), "takes no more jobs") })
	systemd[1].expect(s, "STOPPING=1\nSTATUS=waits for its jobs to end")
	if r := launch(s.Daemon, "-np", "3", "true"); r.Code == 0 || !strings.Contains(r.Stderr, "no room for 3 ranks") {
		t.Errorf("a host that is drained still counts: exit code %d\n%s", r.Code, r.Stderr)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stderr, stdout)
	}
	if err := s.Daemons[1].Wait(); err != nil {
		t.Errorf("the drained daemon: %v\n%s", err, s.Logs[1])
	}
	if n := stdout.Count("begins "); n != 3 {
		t.Errorf("%d ranks began", n)
	}
	for i := range 400 {
		if n := stdout.Count(fmt.Sprintf("step %d\n", i)); n != 3 {
			t.Errorf("step %d was printed %d times", i, n)
		}
	}
	s.Env = nil
	s.Start(1)
	s.ExpectIdle()
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
