package launch

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestDetach: a job outlives the session that started it, and its hosts are clean when it is stopped.
func TestDetach(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	shell := func(script string) (string, error) {
		cmd := c.Launcher().Command(t.Context(), "setsid", "--wait", "sh", "-c", script)
		cmd.Env = append(cmd.Env, "BUSY="+e2etest.Busy, "XDG_STATE_HOME=/root/.cache/gorun/state") // where Leftovers does not look
		cmd.Dir = c.Root
		out, err := cmd.Output()
		if e, ok := err.(*exec.ExitError); ok {
			t.Logf("%s: %s", script, e.Stderr)
		}
		return string(out), err
	}
	id, err := shell(c.Binary + " --detach -np 4 -H host1:2,host2:2 " + e2etest.Python + " -c \"$BUSY\"; kill -9 $$")
	if strings.TrimSpace(id) != "1" || err == nil {
		t.Fatalf("printed %q, %v", id, err)
	}
	c.Await("busy rank", func() bool {
		out, _ := shell(c.Binary + " logs")
		return strings.Count(out, "<stdout>:busy") == 4
	})
	c.Await("work", func() bool {
		out, _ := shell(c.Binary + " top --once")
		return strings.Count(out, "host1") == 2 && strings.Count(out, "host2") == 2 && !strings.Contains(out, " 0 MiB")
	})
	if out, err := shell(c.Binary + " stop 1 && " + c.Binary + " ps"); err != nil || !strings.Contains(out, "ended with 143") {
		t.Errorf("%v\n%s", err, out)
	}
	c.ExpectNothingLeft(5 * time.Second)

	// No one is there to end a job whose detached launcher is killed: its hosts notice.
	if _, err := shell(c.Binary + " --detach -np 4 -H host1:2,host2:2 " + e2etest.Python + " -c \"$BUSY\""); err != nil {
		t.Fatal(err)
	}
	c.Await("busy rank", func() bool {
		out, _ := shell(c.Binary + " logs 2")
		return strings.Count(out, "<stdout>:busy") == 4
	})
	launcher := 0
	for _, p := range c.Launcher().Processes() {
		if strings.Contains(p.Args, " --detach ") {
			launcher = p.PID
		}
	}
	if launcher == 0 {
		t.Fatalf("no launcher in %v", c.Launcher().Processes())
	}
	must.Do(t, syscall.Kill(launcher, syscall.SIGKILL))
	c.ExpectNothingLeft(10 * time.Second)
	if out, err := shell(c.Binary + " ps"); err != nil || !strings.Contains(out, "its launcher was killed") {
		t.Errorf("%v\n%s", err, out)
	}
}
