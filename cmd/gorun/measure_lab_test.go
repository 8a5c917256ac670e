//go:build linux

package main

import (
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gorun/contrib/lab"
)

// A job that goes by what was measured is faster than one in the order of the host list by as much as the
// slowest edges of the two rings differ.
func TestMeasuredRing(t *testing.T) {
	c := newClusterAlone(t, 4)
	const fast, slow = 200e6, 80e6
	for _, h := range c.Hosts() {
		if err := h.SetLink(lab.Link{Rate: fast}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.SetPath(c.Host(2), c.Host(3), slow); err != nil { // an edge of the list's ring
		t.Fatal(err)
	}
	edge := regexp.MustCompile(`<==  ([0-9]+)(?:\.[0-9])? Mbit/s measured, [^,]*, the bottleneck`)
	measured := 0.0
	for range 3 { // of which one is not disturbed by other work of this machine
		r := c.gorun("topo", "-H", "host1,host2,host3,host4", "--ring-order", "host", "--measure", "--ascii")
		found := edge.FindStringSubmatch(r.stdout)
		if r.code != 0 || found == nil {
			t.Fatalf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
		}
		var err error
		if measured, err = strconv.ParseFloat(found[1], 64); err != nil {
			t.Fatal(err)
		}
		if math.Abs(measured*1e6/slow-1) <= 0.1 {
			break
		}
		t.Logf("measured %g Mbit/s where there are %g", measured, slow/1e6)
	}
	if math.Abs(measured*1e6/slow-1) > 0.1 {
		t.Errorf("measured %g Mbit/s where there are %g", measured, slow/1e6)
	}
	var ratio float64
	for range 3 { // of which one is not disturbed by other work of this machine
		ratio = allreduceTime(c, "host") / allreduceTime(c, "measured")
		t.Logf("the measured ring is %.2f times as fast as the host list's; predicted %.2f", ratio, fast/slow)
		if math.Abs(ratio/(fast/slow)-1) < 0.1 {
			return
		}
	}
	t.Errorf("the measured ring is %.2f times as fast as the host list's, should be %.2f", ratio, fast/slow)
}

// Streams use all NICs that the user names: with two, an allreduce takes half the time.
func TestTwoNICs(t *testing.T) {
	c := newClusterAlone(t, 2)
	const rate = 200e6
	for _, h := range c.Hosts() {
		if err := h.SetLink(lab.Link{Rate: rate}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.AddNIC(c.Host(1), c.Host(2), netip.MustParsePrefix("10.78.0.0/24"), rate); err != nil {
		t.Fatal(err)
	}
	run := func(nics string) float64 {
		r := c.gorun("bench", "--network-interfaces", nics, "--algorithm", "ring", "-H", "host1,host2", "-b", "8M", "-e", "8M", "--iters", "3")
		return medianTime(c, r)
	}
	var ratio float64
	for range 3 {
		if ratio = run("10.77.0.0/24") / run("10.77.0.0/24,10.78.0.0/24"); ratio > 1.7 {
			break
		}
	}
	t.Logf("two NICs are %.2f times as fast as one", ratio)
	if ratio < 1.7 {
		t.Errorf("two NICs are %.2f times as fast as one, should be 2", ratio)
	}
}

// allreduceTime returns the median time of an allreduce, in µs.
func allreduceTime(c *cluster, by string) float64 {
	r := c.gorun("bench", "-v", "--ring-order", by, "--algorithm", "ring", "-H", "host1,host2,host3,host4", "-b", "2M", "-e", "2M", "--iters", "4")
	if measured := strings.Contains(r.stderr, "bit/s measured"); measured != (by == "measured") {
		c.t.Errorf("ring by %s:\n%s", by, r.stderr)
	}
	return medianTime(c, r)
}

// medianTime reads the table of a benchmark of one size.
func medianTime(c *cluster, r result) float64 {
	table := rows(r.stdout)
	if r.code != 0 || len(table) != 1 {
		c.t.Fatalf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	for _, field := range strings.Fields(table[0]) {
		if strings.Contains(field, ".") {
			us, err := strconv.ParseFloat(field, 64)
			if err != nil {
				c.t.Fatal(err)
			}
			return us
		}
	}
	c.t.Fatalf("no time in %q", table[0])
	return 0
}
