package cluster

import (
	"strings"
	"syscall"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// TestClusterByName: daemons join what a name leads to, as that of a headless service of Kubernetes: nothing at first, later
// all of them. A job of the cluster runs on both hosts.
func TestClusterByName(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	for i, d := range s.Daemons {
		d.Process.Signal(syscall.SIGTERM)
		if err := d.Wait(); err != nil {
			t.Fatalf("daemon of host%d: %v\n%s", i+1, err, s.Logs[i])
		}
	}
	s.Join = "dns:daemons"
	for i := range s.Daemons {
		s.Start(i)
	}
	if text := s.Ps(); strings.Contains(text, "host1") || !strings.Contains(text, "host2") {
		t.Errorf("host2 has found others before the name had an address:\n%s", text)
	}
	s.Shell(s.Host(1), "echo '"+s.Host(1).Address().String()+" daemons\n"+s.Host(2).Address().String()+" daemons' >>/etc/hosts")
	s.Await("cluster", func() bool { return strings.Count(s.Ps(), "0 of 2") == 2 })
	if r := run(s, "-np", "4", "echo", "both"); r.Code != 0 || strings.Count(r.Stdout, "both") != 4 {
		t.Errorf("exit code %d\n%s", r.Code, r.Stderr)
	}
}
