//go:build linux

package elastic

import (
	"path/filepath"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

// TestShipToJoiner: a host that joins gets the program and the packages that the job was started with from another host, even if the
// user has changed them since.
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
	wheels, _ := c.Wheels()
	shell("printf -- '--no-index\n--find-links " + wheels + "\nnumpy\n' >/root/proj/requirements.txt")
	list := c.HostFile("host1:1", "host2:1")
	until := filepath.Join(c.Shared("counting"), "enough")
	j := c.Follow("--wdir", "/root/proj", "--ship", "--python", "/root/proj/requirements.txt",
		"--min-np", "2", "--host-discovery-script", "cat "+list.Name, "python3", "steps.py",
		"--tell", "--steps", "20", "--commit", "1", "--pause", "0.02", "--until", until)
	j.Until, j.Idle = until, func() { c.ExpectLeft(5*time.Second, "/root/proj") }
	j.Await(`is rank 1 of 2`)
	j.Await(`kept step 3`)
	shell("echo broken | tee /root/proj/steps.py >/root/proj/requirements.txt")
	list.Say("host1:1", "host2:1", "host3:1")
	j.Await(`^gorun: epoch \d+: 3 ranks on 3 hosts, because host3 joined$`)
	j.Counted(3)
}
