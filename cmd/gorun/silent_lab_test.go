//go:build linux

package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestSilentHostIsShown: while a host stands still, the status of the job says since when nothing is heard of it, and so
// does an event for programs; when it is back, that is over.
func TestSilentHostIsShown(t *testing.T) {
	c := newCluster(t, 2)
	gorun := func(args ...string) string {
		cmd := c.Launcher().Command(t.Context(), c.binary, args...)
		cmd.Env = append(cmd.Env, "XDG_STATE_HOME=/root/.cache/gorun/state") // where Leftovers does not look
		cmd.Dir = c.root
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("gorun %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	gorun("--detach", "--json", "--lease", "120", "-np", "2", "-H", "host1:1,host2:1", python, "-c", busy)
	c.await("both ranks", func() bool { return strings.Count(gorun("logs"), `"event":"started"`) == 2 })
	began := time.Now()
	if err := c.Host(2).Freeze(); err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?m)^1 +host2 .* host silent since \d\d:\d\d:\d\d$`)
	c.await("line of gorun top", func() bool { return shown.MatchString(gorun("top", "--once")) })
	if out := gorun("top", "--once"); strings.Count(out, "silent") != 1 {
		t.Errorf("only the rank on host2 is on a silent host:\n%s", out)
	}
	if out := gorun("ps"); !regexp.MustCompile(`running, host2 silent since \d\d:\d\d:\d\d`).MatchString(out) {
		t.Errorf("gorun ps does not show it:\n%s", out)
	}
	if err := c.Host(2).Thaw(); err != nil {
		t.Fatal(err)
	}
	c.await("end of it", func() bool { return !strings.Contains(gorun("ps")+gorun("top", "--once"), "silent") })
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
	c.expectNothingLeft(5 * time.Second)
}
