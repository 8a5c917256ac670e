package cluster

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
)

// TestClusterRDMA: resident daemons that were started with --rdma run one job after the other over a stand-in for libibverbs.
// A job that does not ask for RDMA goes over TCP.
func TestClusterRDMA(t *testing.T) {
	if testing.Short() {
		t.Skip("a part of make test-all: jobs over ssh use the same daemon")
	}
	v := e2etest.NewStandin(t)
	s := e2etest.NewLastingWith(t, 2, lab.Options{Share: []string{v.Dir}}, "--rdma", "--rdma-library", v.Library)
	const sums = "import numpy as np, gorun.numpy as hvd; hvd.init(); print(hvd.allreduce(np.ones(1 << 20), op=hvd.Sum)[:2])"
	for _, flags := range [][]string{v.Flags(), nil, v.Flags()} {
		cmd, stdout, stderr := s.Command(slices.Concat(s.Args, []string{"-v", "-np", "4"}, flags, []string{e2etest.Python, "-c", sums})...)
		if err := cmd.Run(); err != nil || strings.Count(stdout.String(), "[4. 4.]") != 4 {
			t.Fatalf("%v: %v\n%s\n%s", flags, err, stdout, stderr)
		}
		sent := regexp.MustCompile(`between hosts: sent (\d+) bytes( \((\d+) over RDMA\))?`).FindStringSubmatch(stderr.String())
		if sent == nil || (flags != nil) != (sent[3] == sent[1]) {
			t.Errorf("%v: %q\n%s", flags, sent, stderr)
		}
	}
	if left := v.Left(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
