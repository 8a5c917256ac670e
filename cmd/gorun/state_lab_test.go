//go:build linux

package main

import (
	"strconv"
	"testing"

	"gorun/contrib/lab"
)

// TestStateAtWireSpeed: a rank that is new gets models and optimizers at the speed of its link.
func TestStateAtWireSpeed(t *testing.T) {
	needTorch(t)
	const rate = 500_000_000 // bits per second
	c := newCluster(t, 2)
	for h := 1; h <= 2; h++ {
		if err := c.Host(h).SetLink(lab.Link{Rate: rate}); err != nil {
			t.Fatal(err)
		}
	}
	j := c.follow("-H", "host1:1,host2:1", python, "testdata/resilience/sync.py")
	if err := j.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, j.out)
	}
	digests, _ := j.out.find(`rank \d has (\w+)`)
	if len(digests) != 2 || digests[0][1] != digests[1][1] {
		t.Errorf("ranks differ:\n%s", j.out)
	}
	best := 0.0
	found, _ := j.out.find(`sync moved (\d+) bytes in ([0-9.]+) s`)
	for _, f := range found {
		bytes, _ := strconv.ParseFloat(f[1], 64)
		seconds, _ := strconv.ParseFloat(f[2], 64)
		best = max(best, bytes*8/seconds)
		t.Logf("%.0f MB in %.2f s: %.0f MB/s, %.0f %% of the link", bytes/1e6, seconds, bytes/seconds/1e6, 100*bytes*8/seconds/rate)
	}
	if best < 0.8*rate {
		t.Errorf("state moves at %.0f %% of the speed of the link\n%s", 100*best/rate, j.out)
	}
}
