package launch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

// TestClean: hosts keep few of the programs that they were sent, by themselves and at a user's word, and never lose one that runs. A job
// of another terminal is listed beside.
func TestClean(t *testing.T) {
	c := e2etest.NewSSHCluster(t, 2)
	there := func(host int, digit string) bool {
		return strings.Contains(c.Shell(c.Host(host), "ls /root/.cache/gorun"), strings.Repeat(digit, 64))
	}
	plant := func(host int, digit, ago string) {
		dir := "/root/.cache/gorun/" + strings.Repeat(digit, 64)
		c.Shell(c.Host(host), fmt.Sprintf("mkdir -p %s; echo x >%[1]s/gorun; touch -d '%s ago' %[1]s", dir, ago))
	}
	// By themselves hosts keep three programs, and what was used within a day.
	for i, ago := range []string{"23 hours", "2 days", "3 days", "4 days"} {
		plant(1, fmt.Sprint(i+1), ago)
	}
	run := func(args ...string) string {
		t.Helper()
		r := c.GorunBeside(args...)
		if r.Code != 0 {
			t.Fatalf("gorun %q: %+v", args, r)
		}
		return r.Stdout
	}
	run("-np", "2", "-H", "host1:1,host2:1", "true")
	for digit, want := range map[string]bool{"1": true, "2": true, "3": false, "4": false} {
		if there(1, digit) != want {
			t.Errorf("program %s is there: %v", digit, !want)
		}
	}
	// A user removes more, but not what runs.
	plant(2, "5", "3 hours")
	job := c.Follow("-np", "2", "-H", "host1:1,host2:1", "sh", "-c", "echo runs; sleep 1000")
	c.Await("ranks", func() bool { return strings.Count(job.Out.String(), ":runs") == 2 })
	if out := run("ps"); !strings.Contains(out, "host1,host2") || !strings.Contains(out, "running, in the foreground") {
		t.Errorf("the job is not listed\n%s", out)
	}
	shown := run("clean", "-H", "host1,host2", "--dry-run")
	if strings.Count(shown, "would be removed") != 1 || !there(1, "2") {
		t.Errorf("of a day: %s", shown)
	}
	if out := run("clean", "-H", "host1,host2", "--older-than", "0"); strings.Count(out, " in use") != 2 || strings.Count(out, " removed") != 3 {
		t.Errorf("of all times:\n%s", out)
	}
	for host, digits := range map[int][]string{1: {"1", "2"}, 2: {"5"}} {
		for _, digit := range digits {
			if there(host, digit) {
				t.Errorf("host%d still has program %s", host, digit)
			}
		}
	}
	run("stop")
	job.Cmd.Wait() // with the status of the signal
	if out := run("ps"); !strings.Contains(out, "ended with 143 at ") || !strings.Contains(out, ", stopped by root@") {
		t.Errorf("after gorun stop:\n%s", out)
	}
	out := c.GorunBeside("clean", "-H", "host1,nowhere.invalid", "--older-than", "0")
	if out.Code != 255 || !strings.Contains(out.Stdout, "host1 ") || !strings.Contains(out.Stdout, "failed: ") {
		t.Errorf("one host is not there: %+v", out)
	}
	c.ExpectNothingLeft(5 * time.Second)
}
