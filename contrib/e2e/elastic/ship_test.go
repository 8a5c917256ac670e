package elastic

import (
	"path/filepath"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

// TestShipToJoiner: a host that joins gets the program and the packages that the job was started with from another host, be it one that had
// them before the job, even if the user has changed them since.
func TestShipToJoiner(t *testing.T) {
	e2etest.DependsOn(t, "testdata/elastic")
	c := e2etest.NewCluster(t, 3)
	shell := func(line string) {
		t.Helper()
		c.Shell(c.Launcher(), line)
	}
	shell("mkdir /root/proj && cp " + filepath.Join(c.Root, "testdata/elastic/*.py") + " /root/proj/")
	wheels, _ := c.Wheels()
	shell("printf -- '--no-index\n--find-links " + wheels + "\nnumpy\n' >/root/proj/requirements.txt")
	for _, args := range [][]string{{"-H", "host1,host2,host3"}, {"-H", "host1,host2", "--python", "/root/proj/requirements.txt"}} {
		if r := c.GorunBeside(append(args, "true")...); r.Code != 0 { // so that two hosts have the packages, and all have gorun
			t.Fatal(r.Stderr)
		}
	}
	list := c.HostFile("host1:1", "host2:1")
	until := filepath.Join(c.Shared("counting"), "enough")
	j := c.Follow("--wdir", "/root/proj", "--ship", "--python", "/root/proj/requirements.txt",
		"--min-np", "2", "--host-discovery-script", "cat "+list.Name, "python3", "steps.py",
		"--tell", "--steps", "20", "--commit", "1", "--pause", "0.02", "--until", until)
	j.Until, j.Idle = until, func() { c.ExpectLeft(5*time.Second, "/root/proj") }
	j.Await(`is rank 1 of 2`)
	j.Await(`kept step 3`)
	shell("echo broken | tee /root/proj/steps.py >/root/proj/requirements.txt")
	before := c.Sent(c.Launcher())
	list.Say("host1:1", "host2:1", "host3:1")
	j.Await(`^gorun: epoch \d+: 3 ranks on 3 hosts, because host3 joined$`)
	if bytes := c.Sent(c.Launcher()) - before; bytes > 1e6 {
		t.Errorf("the launcher sent %d bytes to a host that joined, though others had the packages before the job", bytes)
	}
	j.Counted(3)
}
