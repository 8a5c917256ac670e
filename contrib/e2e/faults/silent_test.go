package faults

import (
	"encoding/json"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestSilentHostIsShown: while a host is paused, the status of the job shows since when it has been silent, and so
// does an event for programs; when it is back, that is over.
func TestSilentHostIsShown(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	gorun := func(args ...string) string {
		cmd := c.Launcher().Command(t.Context(), c.Binary, args...)
		cmd.Env = append(cmd.Env, "XDG_STATE_HOME=/root/.cache/gorun/state") // where Leftovers does not look
		cmd.Dir = c.Root
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("gorun %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	gorun("--detach", "--json", "--lease", "120", "-np", "2", "-H", "host1:1,host2:1", e2etest.Python, "-c", e2etest.Busy)
	c.Await("both ranks", func() bool { return strings.Count(gorun("logs"), `"event":"started"`) == 2 })
	began := time.Now()
	must.Do(t, c.Host(2).Freeze())
	shown := regexp.MustCompile(`(?m)^1 +host2 .* host silent since \d\d:\d\d:\d\d$`)
	c.Await("line of gorun top", func() bool { return shown.MatchString(gorun("top", "--once")) })
	if out := gorun("top", "--once"); strings.Count(out, "silent") != 1 {
		t.Errorf("only the rank on host2 is on a silent host:\n%s", out)
	}
	if out := gorun("ps"); !regexp.MustCompile(`running, host2 silent since \d\d:\d\d:\d\d`).MatchString(out) {
		t.Errorf("gorun ps does not show it:\n%s", out)
	}
	must.Do(t, c.Host(2).Thaw())
	c.Await("end of it", func() bool { return !strings.Contains(gorun("ps")+gorun("top", "--once"), "silent") })
	var states []string
	for line := range strings.Lines(gorun("logs")) {
		var e struct {
			Event, Host, State string
			Since              time.Time
		}
		if json.Unmarshal([]byte(line), &e) == nil && e.Event == "host" {
			states = append(states, e.Host+" "+e.State)
			if apart := e.Since.Sub(began).Abs(); apart > 30*time.Second {
				t.Errorf("it is silent since %v, and was frozen at %v", e.Since, began)
			}
		}
	}
	if got := strings.Join(states, ", "); got != "host2 silent, host2 back" {
		t.Errorf("the events say: %s", got)
	}
	gorun("stop")
	c.ExpectNothingLeft(5 * time.Second)
}

// TestHostMissesTheEnd: a job is stopped while one of its hosts is paused. Users hear that it is waited for, and that
// it may have ranks left. When it goes on no one hears a launcher any more, which it knows from the others having
// ended: so its ranks end as well.
func TestHostMissesTheEnd(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	j := c.Follow("-np", "3", "-H", "host1,host2,host3", "--lease", "120", "--grace", "1", "--verbose", "sh", "-c", "echo up; sleep 1000")
	c.Await("world and ranks", func() bool {
		up, _ := j.Out.Find(`:up$`)
		return len(up) == 3 && j.Out.Has(`gorun: epoch 1, ring: `)
	})
	j.Must(c.Host(3).Freeze())
	j.Must(j.Cmd.Process.Signal(syscall.SIGINT))
	j.Await(`gorun: stopping the ranks`)
	j.Await(`gorun: waiting for host3, silent for \d+ s$`)
	j.Must(j.Cmd.Process.Signal(syscall.SIGINT))
	if err := j.Cmd.Wait(); j.Cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("%v\n%s", err, j.Out)
	}
	if !j.Out.Has(`gorun: host3 did not answer: ranks may still run there$`) {
		t.Errorf("no line reports what is left:\n%s", j.Out)
	}
	if n := sleepers(c, c.Host(3)); n != 1 {
		t.Errorf("%d ranks are left on the host that stands still, want 1", n)
	}
	j.Must(c.Host(3).Thaw())
	thawed := time.Now()
	c.ExpectNothingLeft(15 * time.Second) // as after any launcher that dies, and not the lease
	t.Logf("nothing is left %v after the host went on", time.Since(thawed).Round(time.Millisecond))
}
