//go:build linux

package elastic

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

// TestTopologyFileChanges: an administrator corrects the topology file while a job runs. The ring follows; a file that
// is none is reported, and changes nothing.
func TestTopologyFileChanges(t *testing.T) {
	c := e2etest.NewCluster(t, 4)
	dir := c.Shared("facts")
	file := filepath.Join(dir, "facts.yaml")
	write := func(racks ...string) {
		t.Helper()
		text := "hosts:\n"
		for i, rack := range racks {
			text += fmt.Sprintf("  host%d: {%s}\n", i+1, rack)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rack: a", "rack: a", "rack: b", "rack: b")
	const steps = 500
	j := c.Follow("-v", "--ring-order", "topology", "--topology", file, "--algorithm", "ring",
		"-H", "host1,host2,host3,host4", e2etest.Python, "testdata/elastic/steps.py", "--steps", fmt.Sprint(steps), "--length", "4000", "--pause", "0.05")
	j.Await(`epoch 1, ring: host1 → host2 → host3 → host4 → `)
	j.Await(`commit 10 epoch 1 size 4`)
	write("rack: a", "rock: b", "rack: a", "rack: b")
	j.Await(`warning: .*facts.yaml: line 3: a host has no "rock"; its previous content still counts`)
	write("rack: a", "rack: b", "rack: a", "rack: b")
	j.Await(`facts.yaml has changed: its content counts from now on`)
	j.Await(`host2: by the topology file rack is b, not a`)
	j.Await(`epoch 1, the ring changes while the job runs: it crosses 2 borders less`)
	write("rack: a", "rack: b", "", "rack: b")
	j.Await(`host3: by the topology file rack is not known, was a`)
	if err := j.Cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, j.Out)
	}
	c.ExpectNothingLeft(5 * time.Second)
	if rings, _ := j.Out.Find(`epoch 1, ring: (.*)$`); len(rings) != 2 || rings[1][1] != "host1 → host2 → host4 → host3 → (host1)" {
		t.Errorf("rings %v", rings)
	}
	if done, _ := j.Out.Find(fmt.Sprintf(`done rank \d of 4: steps %d epoch 1 worlds 1 weights (\w+)$`, steps)); len(done) != 4 {
		t.Errorf("%d ranks are done in the world that they began in\n%s", len(done), j.Out)
	}
}
