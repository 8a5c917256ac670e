package python

import (
	"regexp"
	"strings"
	"testing"

	"gorun/collective/schedule"
	"gorun/contrib/e2e/e2etest"
)

// Hosts measure their links and agree on what they found, or follow the flag.
func TestAlgorithms(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	fitted := regexp.MustCompile(`between hosts a message takes [0-9.]+ µs, a byte [0-9.]+ ns \([0-9.]+ GB/s\); allreduce by [a-z-]+`)
	if r := c.Gorun("bench", "-v", "-H", "host1,host2,host3", "-b", "4", "-e", "4M", "-f", "32", "--iters", "5"); r.Code != 0 || !fitted.MatchString(r.Stderr) {
		t.Errorf("exit code %d\n%s", r.Code, r.Stderr)
	}
	for _, by := range schedule.AlgorithmNames()[1:] {
		r := c.Gorun("bench", "-v", "--algorithm", by, "-H", "host1,host2,host3", "-b", "4", "-e", "4M", "-f", "32", "--iters", "3")
		if r.Code != 0 || !strings.Contains(r.Stderr, "between hosts allreduce by "+by) {
			t.Errorf("%s: exit code %d\n%s", by, r.Code, r.Stderr)
		}
		measured := e2etest.Rows(r.Stdout)
		for _, row := range measured {
			if fields := strings.Fields(row); fields[len(fields)-1] != "0" {
				t.Errorf("%s: wrong elements\n%s", by, r.Stdout)
			}
		}
		if len(measured) != 5 {
			t.Errorf("%s: %d sizes\n%s", by, len(measured), r.Stdout)
		}
	}
}
