//go:build linux

package main

import (
	"regexp"
	"strings"
	"testing"
)

// Hosts measure their links and agree on what they found, or do as they are told.
func TestAlgorithms(t *testing.T) {
	c := newCluster(t, 3)
	fitted := regexp.MustCompile(`between hosts a message takes [0-9.]+ µs, a byte [0-9.]+ ns \([0-9.]+ GB/s\); allreduce by [a-z-]+`)
	if r := c.gorun("bench", "-v", "-H", "host1,host2,host3", "-b", "4", "-e", "4M", "-f", "32", "--iters", "5"); r.code != 0 || !fitted.MatchString(r.stderr) {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	for _, by := range []string{"ring", "direct", "recursive-doubling", "rabenseifner", "tree"} {
		r := c.gorun("bench", "-v", "--algorithm", by, "-H", "host1,host2,host3", "-b", "4", "-e", "4M", "-f", "32", "--iters", "3")
		if r.code != 0 || !strings.Contains(r.stderr, "between hosts allreduce by "+by) {
			t.Errorf("%s: exit code %d\n%s", by, r.code, r.stderr)
		}
		measured := rows(r.stdout)
		for _, row := range measured {
			if fields := strings.Fields(row); fields[len(fields)-1] != "0" {
				t.Errorf("%s: wrong elements\n%s", by, r.stdout)
			}
		}
		if len(measured) != 5 {
			t.Errorf("%s: %d sizes\n%s", by, len(measured), r.stdout)
		}
	}
}

// rows returns the lines of a table that are no comments.
func rows(table string) []string {
	var out []string
	for line := range strings.Lines(table) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}
