//go:build linux

package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"gorun/contrib/lab"
)

// sums is a program that adds tensors of many sizes over all ranks, by every algorithm that the sizes choose.
const sums = `
import numpy as np
import gorun.numpy as hvd
hvd.init()
n = hvd.size()
for i, length in enumerate((1, 1000, 100_000, 2_000_000)):
    got = hvd.allreduce(np.full(length, hvd.rank() + 1.0, np.float32), name=f"t{i}", op=hvd.Sum)
    assert (got == n * (n + 1) / 2).all(), (length, got)
for root in range(n):
    assert hvd.broadcast(np.full(3, float(hvd.rank())), root, name=f"b{root}")[0] == root
print("sums are right")
`

// TestManyHosts: among more hosts than connect with each other at once, links come up with what is sent. The binary is sent
// to the first four of them, and they hand it to the others.
func TestManyHosts(t *testing.T) {
	c := newCluster(t, 10)
	var hosts []string
	for i := range 10 {
		hosts = append(hosts, fmt.Sprintf("host%d", i+1))
	}
	if r := c.gorun("-H", "host1", "true"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	one := c.sent()
	if _, err := c.Host(1).Exec(t.Context(), "rm", "-r", "/root/.cache/gorun"); err != nil {
		t.Fatal(err)
	}
	if err := c.Launcher().SetLink(lab.Link{Rate: 100e6}); err != nil {
		t.Fatal(err)
	}
	before := c.sent()
	r := c.gorun("-np", "10", "-H", strings.Join(hosts, ":1,")+":1", python, "-c", sums)
	if r.code != 0 || strings.Count(r.stdout, "sums are right") != 10 {
		t.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	copies := float64(c.sent()-before) / float64(one)
	t.Logf("the launcher has sent the binary %.1f times", copies)
	if copies > 6 {
		t.Errorf("the launcher has sent the binary %.1f times to 10 hosts, want 4 and as often as no host has it yet", copies)
	}
	for _, h := range c.Hosts() {
		sum, err := h.Exec(t.Context(), "sh", "-c", "cd /root/.cache/gorun && for f in */gorun; do echo \"${f%/gorun}  $f\" | sha256sum --check --status && echo good; done")
		if err != nil || sum != "good\n" {
			t.Errorf("%s has no good copy of the binary: %q, %v", h.Name(), sum, err)
		}
	}
}

// sent is how many bytes the launcher's host has sent on its network.
func (c *cluster) sent() (bytes int) {
	c.t.Helper()
	text, err := c.Launcher().Exec(c.t.Context(), "cat", "/proc/net/dev")
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if counts, ok := strings.CutPrefix(strings.TrimSpace(line), "eth0:"); ok {
			if bytes, err = strconv.Atoi(strings.Fields(counts)[8]); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	return bytes
}
