//go:build linux

package speed

import (
	"encoding/json"
	"math"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// Where other ways are slow in one network than in the other, large tensors take a ring in each, and are faster than over
// one ring in both networks by the predicted factor.
func TestRingInEachNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("a part of make test-all")
	}
	c := e2etest.NewClusterAlone(t, 4)
	const fast, slow = 240e6, 60e6
	networks := [...]netip.Prefix{netip.MustParsePrefix("10.77.0.0/24"), netip.MustParsePrefix("10.78.0.0/24")}
	for _, h := range c.Hosts() {
		must.Do(t, h.SetLink(lab.Link{Rate: fast}))
	}
	must.Do(t, c.AddNetwork(networks[1], lab.Link{Rate: fast}))
	// No ring over both networks gets past all of these: it has two of them, in one network or the other.
	for _, pair := range [][2]int{{1, 2}, {3, 4}} {
		must.Do(t, c.SetPath(c.Host(pair[0]), c.Host(pair[1]), slow))
	}
	for _, pair := range [][2]int{{1, 3}, {2, 4}} {
		must.Do(t, c.SetPathIn(networks[1], c.Host(pair[0]), c.Host(pair[1]), slow))
	}
	const predicted = 2 * fast / (fast + slow)

	dir := c.Shared("rails")
	file := filepath.Join(dir, "measured.yaml")
	where := []string{"-H", "host1,host2,host3,host4", "--network-interfaces", "10.77.0.0/24,10.78.0.0/24"}
	r := c.Gorun(append([]string{"topo", "--measure", "--save", file, "--json"}, where...)...)
	type edge struct {
		From, To string
		Speed    float64 `json:"speed_mbit"`
	}
	var found struct {
		Rings []struct {
			Network string
			Share   float64
			Ring    []edge
		}
		Split string
	}
	if err := json.Unmarshal([]byte(r.Stdout), &found); err != nil || len(found.Rings) != 2 {
		t.Fatalf("%v, exit code %d\n%s\n%s", err, r.Code, r.Stdout, r.Stderr)
	}
	for i, ring := range found.Rings {
		if ring.Network != networks[i].String() || ring.Share < 0.4 || ring.Share > 0.6 || len(ring.Ring) != 4 {
			t.Errorf("ring %d: %+v", i+1, ring)
		}
		for _, e := range ring.Ring {
			if e.Speed*1e6 < 0.8*fast || e.Speed*1e6 > 1.2*fast {
				t.Errorf("the ring in %s has the edge %+v, where there are edges of %g Mbit/s", ring.Network, e, fast/1e6)
			}
		}
	}
	if r := c.Gorun(append([]string{"topo", "--topology", file, "--ascii"}, where...)...); r.Code != 0 ||
		!strings.Contains(r.Stdout, "large tensors, in 10.78.0.0/24") || !strings.Contains(r.Stdout, "large tensors take 2 rings at once") {
		t.Errorf("the picture, exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}

	// One ring over both networks has a slow stream beside a fast one on some of its ways, and at the end of a step waits for
	// what the slow one has taken already: half a megabyte and what is on the cable. In large tensors that is little.
	run := func(by string) float64 {
		r := c.Gorun(append([]string{"bench", "-v", "--topology", file, "--ring-order", by, "--algorithm", "ring", "-b", "64M", "-e", "64M", "--iters", "2"}, where...)...)
		if several := strings.Contains(r.Stderr, "% in 10.78.0.0/24, ring: host1 → "); several != (by == "measured") {
			t.Errorf("rings by %s:\n%s", by, r.Stderr)
		}
		return medianTime(c, r)
	}
	var ratio float64
	for range 3 { // of which one is not disturbed by other work of this machine
		ratio = run("topology") / run("measured")
		t.Logf("a ring in each network is %.2f times as fast as one over both; predicted %.2f", ratio, predicted)
		if math.Abs(ratio/predicted-1) < 0.1 {
			return
		}
	}
	t.Errorf("a ring in each network is %.2f times as fast as one over both, should be %.2f", ratio, predicted)
}
