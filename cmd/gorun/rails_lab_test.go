//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gorun/contrib/lab"
)

// Where other ways are slow in one network than in the other, large tensors take a ring in each, and are faster than over
// one ring in both networks by the predicted factor.
func TestRingInEachNetwork(t *testing.T) {
	c := newClusterAlone(t, 4)
	const fast, slow = 240e6, 60e6
	networks := [...]netip.Prefix{netip.MustParsePrefix("10.77.0.0/24"), netip.MustParsePrefix("10.78.0.0/24")}
	for _, h := range c.Hosts() {
		if err := h.SetLink(lab.Link{Rate: fast}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.AddNetwork(networks[1], lab.Link{Rate: fast}); err != nil {
		t.Fatal(err)
	}
	// No ring over both networks gets past all of these: it has two of them, in one network or the other.
	for _, pair := range [][2]int{{1, 2}, {3, 4}} {
		if err := c.SetPath(c.Host(pair[0]), c.Host(pair[1]), slow); err != nil {
			t.Fatal(err)
		}
	}
	for _, pair := range [][2]int{{1, 3}, {2, 4}} {
		if err := c.SetPathIn(networks[1], c.Host(pair[0]), c.Host(pair[1]), slow); err != nil {
			t.Fatal(err)
		}
	}
	const predicted = 2 * fast / (fast + slow)

	dir := c.shared("rails")
	file := filepath.Join(dir, "measured.yaml")
	where := []string{"-H", "host1,host2,host3,host4", "--network-interfaces", "10.77.0.0/24,10.78.0.0/24"}
	r := c.gorun(append([]string{"topo", "--measure", "--save", file, "--json"}, where...)...)
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
	if err := json.Unmarshal([]byte(r.stdout), &found); err != nil || len(found.Rings) != 2 {
		t.Fatalf("%v, exit code %d\n%s\n%s", err, r.code, r.stdout, r.stderr)
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
	if r := c.gorun(append([]string{"topo", "--topology", file, "--ascii"}, where...)...); r.code != 0 ||
		!strings.Contains(r.stdout, "large tensors, in 10.78.0.0/24") || !strings.Contains(r.stdout, "large tensors take 2 rings at once") {
		t.Errorf("the picture, exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}

	// One ring over both networks has a slow stream beside a fast one on some of its ways, and at the end of a step waits for
	// what the slow one has taken already: half a megabyte and what is on the cable. In large tensors that is little.
	run := func(by string) float64 {
		r := c.gorun(append([]string{"bench", "-v", "--topology", file, "--ring-order", by, "--algorithm", "ring", "-b", "64M", "-e", "64M", "--iters", "2"}, where...)...)
		if several := strings.Contains(r.stderr, "% in 10.78.0.0/24, ring: host1 → "); several != (by == "measured") {
			t.Errorf("rings by %s:\n%s", by, r.stderr)
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

// TestRingsLoseNetwork: a job has a ring in each of two networks, and in the middle of it a host's NIC in one goes down. The
// host notices, and all go on in one ring, with the weights of a job that nobody disturbed and without a rank beginning anew.
func TestRingsLoseNetwork(t *testing.T) {
	c := newCluster(t, 4)
	if err := c.AddNetwork(netip.MustParsePrefix("10.78.0.0/24"), lab.Link{}); err != nil {
		t.Fatal(err)
	}
	dir := c.shared("rails")
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
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const steps = 400 // computing alone takes 20 s; rings are asked about every 5 s
	j := c.follow("-v", "--ring-order", "measured", "--topology", file, "--algorithm", "ring",
		"--network-interfaces", "10.77.0.0/24,10.78.0.0/24", "-H", "host1,host2,host3,host4",
		python, "testdata/elastic/steps.py", "--steps", fmt.Sprint(steps), "--length", "50000", "--pause", "0.05")
	j.await(`% in 10\.77\.0\.0/24, ring: host1 → host[34] → host2 → `)
	j.await(`% in 10\.78\.0\.0/24, ring: host1 → host[24] → host3 → `)
	j.await(`commit 20 epoch 1 size 4`)
	if _, err := c.Host(3).Exec(t.Context(), "ip", "link", "set", "eth1", "down"); err != nil {
		t.Fatal(err)
	}
	j.await(`host3: eth1 is (down|gone)`)
	j.await(`epoch 1, the ring changes while the job runs: not all hosts are in 10\.78\.0\.0/24 any more, so that all data takes one ring`)
	at, _ := j.out.find(`commit (\d+) epoch 1`)
	changed := at[len(at)-1][1]
	if err := j.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, j.out)
	}
	c.expectNothingLeft(5 * time.Second)
	if changed == fmt.Sprint(steps) {
		t.Errorf("the ring changed after the last step\n%s", j.out)
	}
	if several, _ := j.out.find(`% in 10\.7\d\.0\.0/24, ring: `); len(several) != 2 {
		t.Errorf("%d rings in one network, should be the two of the beginning\n%s", len(several), j.out)
	}
	if j.out.has(`(is lost|epoch [2-9])`) {
		t.Errorf("the world did not stay as it was\n%s", j.out)
	}
	j.doneAlike(t, 4, steps)
}
