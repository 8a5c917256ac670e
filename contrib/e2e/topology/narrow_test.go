package topology

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// TestNarrowPaths: a path between two hosts silently loses packets that both NICs take, as behind a tunnel whose
// ICMP a firewall drops. The job goes on with packets that pass, and reports their size.
func TestNarrowPaths(t *testing.T) {
	t.Parallel()
	for largest, goingOn := range map[int]int{1400: 1280, 1200: 576, 576: 576} {
		t.Run(fmt.Sprint(largest), func(t *testing.T) {
			c := e2etest.NewCluster(t, 2)
			wire, err := c.AddWire(c.Host(1), c.Host(2), lab.Faults{Largest: largest}, 1)
			must.Do(t, err)
			defer wire.Close()
			began := time.Now()
			r := c.Within(90*time.Second, "bench", "-H", "host1,host2", "-b", "4M", "-e", "4M", "--iters", "5")
			t.Logf("%v, %d packets were too large", time.Since(began).Round(time.Millisecond), wire.TooLarge.Load())
			told := regexp.MustCompile(fmt.Sprintf(`(?m)^gorun: host[12]: packets of \d+ bytes to host[12] are lost on the way, small ones arrive: going on with %d bytes, `, goingOn))
			if r.Code != 0 || !told.MatchString(r.Stderr) || !regexp.MustCompile(`(?m)^ +4194304 .* 0$`).MatchString(r.Stdout) {
				t.Errorf("exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
			}
		})
	}
}

// TestNarrowLogin: gorun reaches a host over a path that silently loses packets of more than 576 bytes: it logs in,
// brings the binary, and prints all that ranks write; so does a gorun that uses a long-running daemon.
func TestNarrowLogin(t *testing.T) {
	t.Parallel()
	narrow := func(t *testing.T, c *e2etest.Cluster) {
		t.Helper()
		for _, h := range c.Hosts() {
			wire, err := c.AddWire(c.Launcher(), h, lab.Faults{Largest: 576}, 1)
			must.Do(t, err)
			t.Cleanup(func() { wire.Close() })
		}
	}
	check := func(t *testing.T, c *e2etest.Cluster, args ...string) {
		t.Helper()
		r := c.Bounded(60*time.Second, append(args, "-H", "host1,host2", "sh", "-c", "head -c 3000 /dev/zero | tr '\\0' x; echo")...)
		if r.Code != 0 || strings.Count(r.Stdout, strings.Repeat("x", 3000)) != 2 {
			t.Errorf("exit code %d, %d bytes\n%s", r.Code, len(r.Stdout), r.Stderr)
		}
	}
	t.Run("ssh", func(t *testing.T) {
		c := e2etest.NewCluster(t, 2)
		narrow(t, c)
		check(t, c)
		c.ExpectNothingLeft(10 * time.Second)
	})
	t.Run("cluster", func(t *testing.T) {
		s := e2etest.NewLasting(t, 2)
		narrow(t, s.Cluster)
		check(t, s.Cluster, s.Args...)
		s.ExpectIdle()
	})
}

// TestBlockedPath: when a path no longer carries even the packets that every network carries, the job names the path,
// and ends with its lease.
func TestBlockedPath(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	d := c.Descend(100_000, "0.01", "--lease", "10s")
	d.Reach(3)
	wire, err := c.AddWire(c.Host(1), c.Host(2), lab.Faults{Largest: 400}, 1)
	must.Do(t, err)
	defer wire.Close()
	began := time.Now()
	d.Await(`gorun: host([12]): packets of 576 bytes are lost on the way from 10\.77\.0\.[12] \(eth0\) here to host[12], 10\.77\.0\.[12], only smaller ones arrive`)
	told := time.Since(began)
	d.Cmd.Wait()
	t.Logf("told after %v, over after %v", told, time.Since(began))
	if code := d.Cmd.ProcessState.ExitCode(); code != 255 || told > 20*time.Second || !d.Out.Has(`gorun: error: host[12]: run: (silent for 10s, as host[12] reports|cut off from 1 host: host[12])`) {
		t.Errorf("exit code %d\n%s", code, d.Out)
	}
	d.Idle()
}
