//go:build linux

package elastic

import (
	"path/filepath"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

// TestShipToJoiner: a host that joins gets the program that the job was started with from another host, even if the user has
// changed it since.
func TestShipToJoiner(t *testing.T) {
	e2etest.DependsOn(t, "testdata/elastic")
	c := e2etest.NewCluster(t, 3)
	shell := func(line string) {
		t.Helper()
		if _, err := c.Launcher().Exec(t.Context(), "sh", "-c", line); err != nil {
			t.Fatal(err)
		}
	}
	shell("mkdir /root/proj && cp " + filepath.Join(c.Root, "testdata/elastic/*.py") + " /root/proj/")
	list := c.HostFile("host1:1", "host2:1")
	until := filepath.Join(c.Shared("counting"), "enough")
	j := c.Follow("--wdir", "/root/proj", "--ship", "--min-np", "2", "--host-discovery-script", "cat "+list.Name, e2etest.Python, "steps.py",
		"--tell", "--steps", "20", "--commit", "1", "--pause", "0.02", "--until", until)
	j.Until, j.Idle = until, func() { c.ExpectLeft(5*time.Second, "/root/proj") }
	j.Await(`is rank 1 of 2`)
	j.Await(`kept step 3`)
	shell("echo broken >/root/proj/steps.py")
	list.Say("host1:1", "host2:1", "host3:1")
	j.Await(`^gorun: epoch \d+: 3 ranks on 3 hosts, because host3 joined$`)
	j.Counted(3)
}
