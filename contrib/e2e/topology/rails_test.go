//go:build linux

package topology

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// TestRingsLoseNetwork: a job has a ring in each of two networks, and in the middle of it a host's NIC in one goes down. The
// host notices, and all go on in one ring, with the weights of a job that no one disturbed and without a rank beginning anew.
func TestRingsLoseNetwork(t *testing.T) {
	c := e2etest.NewCluster(t, 4)
	must.Do(t, c.AddNetwork(netip.MustParsePrefix("10.78.0.0/24"), lab.Link{}))
	dir := c.Shared("rails")
	// A ring over both networks would pass a way that is slow in one of them; a ring in each passes none.
	file, text := filepath.Join(dir, "facts.yaml"), "edges:\n"
	slow := map[string]bool{"10.77 1 2": true, "10.77 3 4": true, "10.78 1 3": true, "10.78 2 4": true}
	for _, network := range []string{"10.77", "10.78"} {
		for from := 1; from <= 4; from++ {
			for to := 1; to <= 4; to++ {
				speed := 240
				if slow[fmt.Sprint(network, " ", min(from, to), " ", max(from, to))] {
					speed = 60
				}
				if from != to {
					text += fmt.Sprintf("- {from: host%d, to: host%d, net: %s.0.0/24, mbit: %d}\n", from, to, network, speed)
				}
			}
		}
	}
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	const steps = 400 // computing alone takes 20 s; rings are asked about every 5 s
	j := c.Follow("-v", "--ring-order", "measured", "--topology", file, "--algorithm", "ring",
		"--network-interfaces", "10.77.0.0/24,10.78.0.0/24", "-H", "host1,host2,host3,host4",
		e2etest.Python, "testdata/elastic/steps.py", "--steps", fmt.Sprint(steps), "--length", "50000", "--pause", "0.05")
	j.Await(`% in 10\.77\.0\.0/24, ring: host1 → host[34] → host2 → `)
	j.Await(`% in 10\.78\.0\.0/24, ring: host1 → host[24] → host3 → `)
	j.Await(`commit 20 epoch 1 size 4`)
	if _, err := c.Host(3).Exec(t.Context(), "ip", "link", "set", "eth1", "down"); err != nil {
		t.Fatal(err)
	}
	j.Await(`host3: .*eth1 (has changed|is gone)`)
	if err := j.Cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, j.Out)
	}
	c.ExpectNothingLeft(5 * time.Second)
	if several, _ := j.Out.Find(`% in 10\.7\d\.0\.0/24, ring: `); len(several) != 2 {
		t.Errorf("%d rings in one network, should be the two of the beginning\n%s", len(several), j.Out)
	}
	if j.Out.Has(`(is lost|epoch [2-9])`) {
		t.Errorf("the world did not stay as it was\n%s", j.Out)
	}
	j.DoneAlike(t, 4, steps)
}
