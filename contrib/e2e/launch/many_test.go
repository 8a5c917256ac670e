package launch

import (
	"fmt"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
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

// TestManyHosts: among more hosts than connect with each other at once, links come up with what is sent. Each host has a
// good copy of the binary.
func TestManyHosts(t *testing.T) {
	c := e2etest.NewCluster(t, 10)
	var hosts []string
	for i := range 10 {
		hosts = append(hosts, fmt.Sprintf("host%d:1", i+1))
	}
	r := c.Gorun("-np", "10", "-H", strings.Join(hosts, ","), e2etest.Python, "-c", sums)
	if r.Code != 0 || strings.Count(r.Stdout, "sums are right") != 10 {
		t.Errorf("exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	for _, h := range c.Hosts() {
		sum, err := h.Exec(t.Context(), "sh", "-c", "cd /root/.cache/gorun && for f in */gorun; do echo \"${f%/gorun}  $f\" | sha256sum --check --status && echo good; done")
		if err != nil || sum != "good\n" {
			t.Errorf("%s has no good copy of the binary: %q, %v", h.Name(), sum, err)
		}
	}
}
