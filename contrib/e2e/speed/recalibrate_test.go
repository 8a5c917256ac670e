//go:build linux

package speed

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
)

// TestCostFollowsEdges: the network becomes slow in the middle of a job. The cost of a message, which chooses the algorithms,
// changes between two operations that all hosts agree on; no rank notices.
func TestCostFollowsEdges(t *testing.T) {
	if testing.Short() {
		t.Skip("a part of make test-all")
	}
	c := e2etest.NewClusterAlone(t, 3)
	links := func(rate int64) {
		t.Helper()
		for _, h := range c.Hosts() {
			if err := h.SetLink(lab.Link{Rate: rate}); err != nil {
				t.Fatal(err)
			}
		}
	}
	links(400e6)
	const steps = 180
	j := c.Follow("-v", "-H", "host1,host2,host3", e2etest.Python, "testdata/elastic/steps.py", "--steps", fmt.Sprint(steps), "--length", "400000", "--pause", "0.02")
	j.Await(`commit 80 epoch 1 size 3`)
	links(60e6)
	j.Await(`host1: the slowest edge of the ring carries \d+ Mbit/s instead of \d+: from now on a message takes`)
	links(400e6)
	if err := j.Cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, j.Out)
	}
	c.ExpectNothingLeft(5 * time.Second)
	found, _ := j.Out.Find(`host1: the slowest edge of the ring carries .* from now on .* a byte ([0-9.e+-]+) ns .*; allreduce by (.*); before .* a byte ([0-9.e+-]+) ns .*; allreduce by (.*)$`)
	if len(found) == 0 {
		t.Fatalf("no costs old and new\n%s", j.Out)
	}
	now, err := strconv.ParseFloat(found[0][1], 64)
	before, err2 := strconv.ParseFloat(found[0][3], 64)
	t.Logf("a byte takes %g ns instead of %g; allreduce by %s instead of %s", now, before, found[0][2], found[0][4])
	if err != nil || err2 != nil || now < 1.4*before {
		t.Errorf("a byte takes %s ns instead of %s over ways that are 6 times slower\n%s", found[0][1], found[0][3], j.Out)
	}
	if found[0][2] == found[0][4] {
		t.Errorf("algorithms change at the same sizes as before: %s\n%s", found[0][2], j.Out)
	}
	j.DoneAlike(t, 3, steps)
}
