//go:build linux

package launch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
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

// TestManyHosts: the binary is sent to the first few of many hosts, and they hand it to the others. Among more hosts than
// connect with each other at once, links come up with what is sent.
func TestManyHosts(t *testing.T) {
	c := e2etest.NewCluster(t, 10)
	var hosts []string
	for i := range 10 {
		hosts = append(hosts, fmt.Sprintf("host%d:1", i+1))
	}
	must.Do(t, c.Launcher().SetLink(lab.Link{Rate: 100e6}))
	before, among := c.Sent(c.Launcher()), c.Sent(c.Hosts()...)
	if r := c.Gorun("-np", "10", "-H", strings.Join(hosts, ","), "true"); r.Code != 0 { // which is over before they send anything else
		t.Errorf("exit code %d\n%s", r.Code, r.Stderr)
	}
	bytes, handedBytes := c.Sent(c.Launcher())-before, c.Sent(c.Hosts()...)-among
	text, err := c.Host(1).Exec(t.Context(), "sh", "-c", "cat /root/.cache/gorun/*/gorun | wc -c")
	size, e := strconv.Atoi(strings.TrimSpace(text))
	if err = errors.Join(err, e); err != nil {
		t.Fatal(err)
	}
	copies, handed := float64(bytes)/float64(size), float64(handedBytes)/float64(size)
	t.Logf("the launcher has sent the binary %.1f times, hosts %.1f times", copies, handed)
	// Usually hosts hand it to four or five. On a busy machine uploads may be over before the first of them are up. The launcher
	// sends less than that if it compresses it, as for a host that seems far.
	if handed < 1 || copies+handed > 10.5 {
		t.Errorf("the launcher has sent the binary %.1f times to 10 hosts, and they %.1f times to each other", copies, handed)
	}
	for _, h := range c.Hosts() {
		sum, err := h.Exec(t.Context(), "sh", "-c", "cd /root/.cache/gorun && for f in */gorun; do echo \"${f%/gorun}  $f\" | sha256sum --check --status && echo good; done")
		if err != nil || sum != "good\n" {
			t.Errorf("%s has no good copy of the binary: %q, %v", h.Name(), sum, err)
		}
	}
	r := c.Gorun("-np", "10", "-H", strings.Join(hosts, ","), e2etest.Python, "-c", sums)
	if r.Code != 0 || strings.Count(r.Stdout, "sums are right") != 10 {
		t.Errorf("exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
}
