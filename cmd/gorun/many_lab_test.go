//go:build linux

package main

import (
	"fmt"
	"strings"
	"testing"
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

// TestManyHosts: among more hosts than connect with each other at once, links come up with what is sent.
func TestManyHosts(t *testing.T) {
	c := newCluster(t, 10)
	var hosts []string
	for i := range 10 {
		hosts = append(hosts, fmt.Sprintf("host%d", i+1))
	}
	r := c.gorun("-np", "10", "-H", strings.Join(hosts, ":1,")+":1", python, "-c", sums)
	if r.code != 0 || strings.Count(r.stdout, "sums are right") != 10 {
		t.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
}
