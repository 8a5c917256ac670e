package topology

import (
	"fmt"
	"net/netip"
	"regexp"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// TestNetworkLost: data uses two networks, and in the middle of a job a host's NIC in one goes down. The host notices, and all
// go on in the other, with the weights of a job that no one disturbed and without a rank beginning anew.
func TestNetworkLost(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	must.Do(t, c.AddNetwork(netip.MustParsePrefix("10.78.0.0/24"), lab.Link{}))
	const steps = 200
	j := c.Follow("-v", "--network-interfaces", "10.77.0.0/24,10.78.0.0/24", "-H", "host1,host2,host3",
		e2etest.Python, "testdata/elastic/steps.py", "--steps", fmt.Sprint(steps), "--length", "50000", "--pause", "0.02")
	j.Await(`host3: data goes over eth0 .*, eth1 `)
	j.Await(`commit 20 epoch 1 size 3`)
	counters, err := c.Host(3).Exec(t.Context(), "ip", "-s", "-j", "link", "show", "eth1")
	if sent := regexp.MustCompile(`"tx":{"bytes":[0-9]{6,}`); err != nil || !sent.Match([]byte(counters)) {
		t.Errorf("eth1 carries no tensors: %v\n%s", err, counters)
	}
	if _, err := c.Host(3).Exec(t.Context(), "ip", "link", "set", "eth1", "down"); err != nil {
		t.Fatal(err)
	}
	j.Await(`host3: .*eth1 (has changed|is gone)`)
	j.Succeed()
	c.ExpectNothingLeft(5 * time.Second)
	if j.Out.Has(`(is lost|epoch [2-9])`) {
		t.Errorf("the world did not stay as it was\n%s", j.Out)
	}
	j.DoneAlike(t, 3, steps)
}
