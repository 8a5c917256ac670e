//go:build linux

package cluster

import (
	"strings"
	"syscall"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
)

// shell runs a line on a host.
func shell(t *testing.T, h *lab.LabHost, line string) {
	t.Helper()
	if _, err := h.Exec(t.Context(), "sh", "-c", line); err != nil {
		t.Fatal(err)
	}
}

// TestClusterKeyChange follows docs/guides/clusters.md: the daemons are drained, the key file is replaced on all hosts, and
// they start again. A job that runs meanwhile ends well, and the old key is refused afterwards.
func TestClusterKeyChange(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	job, stdout, stderr := s.Command(append(s.Args, "-np", "4", "sh", "-c", "echo up; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo done")...)
	working := &e2etest.Watch{Buf: stdout}
	job.Stdout = working
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	s.Await("ranks", func() bool { return working.Count("up") == 4 })
	for _, d := range s.Daemons {
		d.Process.Signal(syscall.SIGTERM)
	}
	for i, log := range s.Logs {
		s.Await("drain", func() bool { return log.Count("stops when its jobs have ended") == 1 })
		shell(t, s.Host(i+1), "touch /tmp/go")
	}
	if err := job.Wait(); err != nil || working.Count("done") != 4 {
		t.Errorf("the job: %v\n%s\n%s", err, working.Buf, stderr)
	}
	for i, d := range s.Daemons {
		if err := d.Wait(); err != nil {
			t.Fatalf("daemon of host%d: %v\n%s", i+1, err, s.Logs[i].Buf)
		}
	}
	shell(t, s.Launcher(), "cp -p /root/.ssh/key /root/.ssh/old")
	secret := strings.Repeat("another key ", 4)
	for _, h := range append(s.Hosts(), s.Launcher()) {
		shell(t, h, "rm -f /tmp/go; echo '"+secret+"' >/root/.ssh/key")
	}
	for i := range s.Daemons {
		s.Start(i)
	}
	s.Await("cluster", func() bool { return strings.Count(s.Ps(), "0 of 2") == 2 })
	if r := run(s, "-np", "4", "echo", "again"); r.Code != 0 || strings.Count(r.Stdout, "again") != 4 {
		t.Errorf("exit code %d\n%s", r.Code, r.Stderr)
	}
	old, _, said := s.Command("--cluster", "host2", "--cluster-key-file", "/root/.ssh/old", "true")
	if err := old.Run(); err == nil || !strings.Contains(said.String(), "the other side does not hold the key") {
		t.Errorf("the old key: %v\n%s", err, said)
	}
}
