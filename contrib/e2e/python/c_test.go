package python

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// TestC runs what must hold in C on several hosts; make c does on one.
func TestC(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	program := filepath.Join(c.Shared("c"), "check")
	binding := filepath.Join(c.Root, "contrib", "c")
	e2etest.Compile(t, "cc", "gcc", "-O1", "-pthread", "-o", program, filepath.Join(binding, "check.c"), filepath.Join(binding, "gorun.c"))
	for hosts, ranks := range map[string]int{"host1:1,host2:1": 2, "host1:2,host2:1": 3} {
		r := c.Gorun("-v", "-H", hosts, "--no-tag-output", program)
		if want := fmt.Sprintf("C, %d ranks: ok", ranks); r.Code != 0 || !strings.Contains(r.Stdout, want) || !strings.Contains(r.Stderr, "gorun: host1: computing ") {
			t.Errorf("%s: exit code %d, want %q\n%s\n%s", hosts, r.Code, want, r.Stdout, r.Stderr)
		}
	}
}
