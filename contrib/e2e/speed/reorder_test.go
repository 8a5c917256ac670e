//go:build linux

package speed

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
)

// TestRingChangesWhileTraining: a way of the ring becomes slow in the middle of a job. The hosts notice it by what they
// send anyway, try the others, and go on in another ring without it: the weights are those of a job that no one
// disturbed, to the last bit, and no rank began anew. What happens to an interface is noticed too.
func TestRingChangesWhileTraining(t *testing.T) {
	if testing.Short() {
		t.Skip("a part of make test-all: TestTopologyFileChanges and TestRingFollowsMove change rings too")
	}
	c := e2etest.NewClusterAlone(t, 4)
	const fast, slow = 400e6, 60e6
	for _, h := range c.Hosts() {
		if err := h.SetLink(lab.Link{Rate: fast}); err != nil {
			t.Fatal(err)
		}
	}
	const steps = 120
	j := c.Follow("-v", "--ring-order", "measured", "--algorithm", "ring", "-H", "host1,host2,host3,host4",
		e2etest.Python, "testdata/elastic/steps.py", "--steps", fmt.Sprint(steps), "--length", "400000", "--pause", "0.02")
	j.Await(`commit 20 epoch 1 size 4`)
	first, _ := j.Out.Find(`epoch 1, (ring: host1 → host(\d) → host(\d) → .*)$`)
	if len(first) != 1 {
		t.Fatalf("rings %v\n%s", first, j.Out)
	}
	a, _ := strconv.Atoi(first[0][2])
	b, _ := strconv.Atoi(first[0][3])
	if err := c.SetPath(c.Host(a), c.Host(b), slow); err != nil {
		t.Fatal(err)
	}
	j.Await(fmt.Sprintf(`host[%d%d]: to-host[%d%d] is new`, a, b, a, b))
	j.Await(`epoch 1, the ring changes while the job runs: its slowest edge carries`)
	if err := j.Cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, j.Out)
	}
	c.ExpectNothingLeft(5 * time.Second)
	rings, _ := j.Out.Find(`epoch 1, ring: (.*)$`)
	former, _ := j.Out.Find(`epoch 1, former (ring: .*)$`)
	if len(rings) < 2 || len(former) != len(rings)-1 || former[0][1] != first[0][1] {
		t.Fatalf("rings %v, former ones %v\n%s", rings, former, j.Out)
	}
	last := rings[len(rings)-1][1]
	if strings.Contains(last, fmt.Sprintf("host%d → host%d", a, b)) || strings.Contains(last, fmt.Sprintf("host%d → host%d", b, a)) {
		t.Errorf("the last ring goes over the slow way between host%d and host%d: %s\n%s", a, b, last, j.Out)
	}
	// Ten steps each.
	_, commits := j.Out.Find(`commit \d+ epoch 1`)
	slowest, end := time.Duration(0), commits[len(commits)-1].Sub(commits[len(commits)-2])
	for i := 1; i < len(commits); i++ {
		slowest = max(slowest, commits[i].Sub(commits[i-1]))
	}
	t.Logf("a step took %v over the slow way, %v in the end", slowest/10, end/10)
	if end > slowest*2/3 {
		t.Errorf("the other ring is not faster\n%s", j.Out)
	}
	j.DoneAlike(t, 4, steps)
}
