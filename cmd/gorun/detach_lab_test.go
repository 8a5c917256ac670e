//go:build linux

package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDetach: a job outlives the session that started it, and its hosts are clean when it is stopped.
func TestDetach(t *testing.T) {
	c := newCluster(t, 2)
	shell := func(script string) (string, error) {
		cmd := c.Launcher().Command(t.Context(), "setsid", "--wait", "sh", "-c", script)
		cmd.Env = append(cmd.Env, "BUSY="+busy, "XDG_STATE_HOME=/root/.cache/gorun/state") // where Leftovers does not look
		cmd.Dir = c.root
		out, err := cmd.Output()
		if e, ok := err.(*exec.ExitError); ok {
			t.Logf("%s: %s", script, e.Stderr)
		}
		return string(out), err
	}
	id, err := shell(c.binary + " --detach -np 4 -H host1:2,host2:2 " + python + " -c \"$BUSY\"; kill -9 $$")
	if strings.TrimSpace(id) != "1" || err == nil {
		t.Fatalf("printed %q, %v", id, err)
	}
	c.await("busy rank", func() bool {
		out, _ := shell(c.binary + " logs")
		return strings.Count(out, "<stdout>:busy") == 4
	})
	c.await("work", func() bool {
		out, _ := shell(c.binary + " top --once")
		return strings.Count(out, "host1") == 2 && strings.Count(out, "host2") == 2 && !strings.Contains(out, " 0 MiB")
	})
	if out, err := shell(c.binary + " stop 1 && " + c.binary + " ps"); err != nil || !strings.Contains(out, "ended with 143") {
		t.Errorf("%v\n%s", err, out)
	}
	c.expectNothingLeft(5 * time.Second)

	// Nobody is there to end a job whose detached launcher is killed: its hosts notice.
	if _, err := shell(c.binary + " --detach -np 4 -H host1:2,host2:2 " + python + " -c \"$BUSY\""); err != nil {
		t.Fatal(err)
	}
	c.await("busy rank", func() bool {
		out, _ := shell(c.binary + " logs 2")
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
	if err := syscall.Kill(launcher, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.expectNothingLeft(10 * time.Second)
	if out, err := shell(c.binary + " ps"); err != nil || !strings.Contains(out, "its launcher was killed") {
		t.Errorf("%v\n%s", err, out)
	}
}
