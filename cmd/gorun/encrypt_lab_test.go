//go:build linux

package main

import (
	"strings"
	"testing"
)

// A job whose links are encrypted computes what another one does, with any kind of segments.
func TestEncrypt(t *testing.T) {
	c := newCluster(t, 3)
	r := c.gorun("bench", "-v", "--encrypt", "-H", "host1:2,host2,host3", "-b", "4", "-e", "4M", "-f", "32", "--iters", "5")
	if r.code != 0 || !strings.Contains(r.stderr, "links are encrypted (TLS 1.3)") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if len(rows(r.stdout)) != 5 {
		t.Errorf("rows are missing\n%s", r.stdout)
	}
}
