package speed

import (
	"strconv"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// TestStateAtWireSpeed: a rank that is new, because a host has come, gets model and optimizer from the memory of one that trains, at
// the speed of the link between them.
func TestStateAtWireSpeed(t *testing.T) {
	e2etest.NeedTorch(t)
	const rate = 500_000_000 // bits per second
	c := e2etest.NewClusterAlone(t, 2)
	for h := 1; h <= 2; h++ {
		must.Do(t, c.Host(h).SetLink(lab.Link{Rate: rate}))
	}
	list := c.HostFile("host1:1")
	j := c.Follow("--min-np", "1", "--host-discovery-script", "cat "+list.Name, e2etest.Python, "testdata/resilience/join.py")
	j.Await(`batch 1 of 1$`)
	list.Say("host1:1", "host2:1")
	j.Succeed()
	has := map[string][]string{} // by the batch that each came with, 0 if it is new
	found, _ := j.Out.Find(`rank \d of 2 came with batch (\d+), goes on with (\d+): (\d+) bytes in ([0-9.]+) s, (\w+)`)
	for _, f := range found {
		if f[1] != "0" {
			f[1] = "more"
		}
		has[f[1]] = f[2:]
	}
	given, gave := has["0"], has["more"]
	if len(found) != 2 || given == nil || gave == nil || given[0] == "0" || given[0] != gave[0] || given[3] != gave[3] {
		t.Fatalf("the one that is new has not what the other has:\n%s", j.Out)
	}
	bytes, _ := strconv.ParseFloat(given[1], 64)
	seconds, _ := strconv.ParseFloat(given[2], 64)
	share := bytes * 8 / seconds / rate
	t.Logf("%.0f MB in %.2f s: %.0f MB/s, %.0f %% of the link", bytes/1e6, seconds, bytes/seconds/1e6, 100*share)
	if bytes < 60e6 || share < 0.6 { // some 85 %, where there is nothing else to do
		t.Errorf("state of %.0f MB moves at %.0f %% of the speed of the link\n%s", bytes/1e6, 100*share, j.Out)
	}
}
