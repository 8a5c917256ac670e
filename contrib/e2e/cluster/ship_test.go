//go:build linux

package cluster

import (
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// TestShipToCluster: resident daemons, which have no ssh, get a program that is on the launcher's machine alone.
func TestShipToCluster(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	script := `mkdir /root/.ssh/proj; printf 'import helper, gorun.numpy as hvd; hvd.init(); print("all are", hvd.size())' >/root/.ssh/proj/train.py; touch /root/.ssh/proj/helper.py`
	if _, err := s.Launcher().Exec(t.Context(), "sh", "-c", script); err != nil { // where Leftovers does not look
		t.Fatal(err)
	}
	r := s.GorunBeside(append(s.Args, "--wdir", "/root/.ssh/proj", "--ship", "-np", "4", e2etest.Python, "train.py")...)
	if r.Code != 0 || strings.Count(r.Stdout, "all are 4") != 4 {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	s.ExpectIdle()
}
