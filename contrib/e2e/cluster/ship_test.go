//go:build linux

package cluster

import (
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// TestShipToCluster: resident daemons, which have no ssh, get a program and packages that are on the launcher's machine alone.
func TestShipToCluster(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	wheels, _ := s.Wheels()
	script := `mkdir /root/.ssh/proj; printf 'import sys, numpy, helper, gorun.numpy as hvd; hvd.init(); print("all are", hvd.size(), numpy.__file__.startswith(sys.prefix))' >/root/.ssh/proj/train.py; touch /root/.ssh/proj/helper.py; printf -- '--no-index\n--find-links ` + wheels + `\nnumpy\n' >/root/.ssh/proj/requirements.txt`
	if _, err := s.Launcher().Exec(t.Context(), "sh", "-c", script); err != nil { // where Leftovers does not look
		t.Fatal(err)
	}
	r := s.GorunBeside(append(s.Args, "--wdir", "/root/.ssh/proj", "--ship", "--python", "/root/.ssh/proj/requirements.txt", "-np", "4", e2etest.Python, "train.py")...)
	if r.Code != 0 || strings.Count(r.Stdout, "all are 4 True") != 4 {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	s.ExpectIdle()
}
