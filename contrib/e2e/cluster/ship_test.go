package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestShipToCluster: resident daemons, which have no ssh, get a program and packages that are on the launcher's machine alone.
func TestShipToCluster(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	wheels, _ := s.Wheels()
	script := `mkdir /root/.ssh/proj; printf 'import sys, numpy, helper, gorun.numpy as hvd; hvd.init(); print("all are", hvd.size(), numpy.__file__.startswith(sys.prefix))' >/root/.ssh/proj/train.py; touch /root/.ssh/proj/helper.py; printf -- '--no-index\n--find-links ` + wheels + `\nnumpy\n' >/root/.ssh/proj/requirements.txt`
	s.Shell(s.Launcher(), script) // where Leftovers does not look
	r := s.GorunBeside(append(s.Args, "--wdir", "/root/.ssh/proj", "--ship", "--python", "/root/.ssh/proj/requirements.txt", "-np", "4", e2etest.Python, "train.py")...)
	if r.Code != 0 || strings.Count(r.Stdout, "all are 4 True") != 4 {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	s.ExpectIdle()
}

// TestShipDetached: a detached job has what it brought without the machine of its user: its launcher, on a daemon's host, gives it to a
// host that joins, and so does the launcher that takes over when that host is lost.
func TestShipDetached(t *testing.T) {
	e2etest.DependsOn(t, "testdata/elastic")
	s := e2etest.NewLasting(t, 3)
	wheels, _ := s.Wheels()
	until := filepath.Join(s.Shared("counting"), "enough")
	home := func(line string) {
		t.Helper()
		s.Shell(s.Launcher(), line)
	}
	home("mkdir -p /root/.ssh/proj/lib /root/.ssh/venv/bin && touch /root/.ssh/venv/pyvenv.cfg /root/.ssh/venv/bin/env && cd /root/.ssh/proj && cp " + filepath.Join(s.Root, "testdata/elastic/steps.py") + " . && echo NAME=secret >.env && touch lib/inside.py && " +
		"printf -- '--no-index\\n--find-links " + wheels + "\\nnumpy\\n' >requirements.txt && " +
		"echo 'import os, sys, numpy, inside; print(\"has\", os.environ[\"NAME\"], numpy.__file__.startswith(sys.prefix)); import steps' >train.py")
	s.PowerOff(2)
	j := detach(s, "--lease", "3", "--min-np", "2", "--max-np", "3", "-ppn", "1", "--env-file", "/root/.ssh/proj/.env", "--python", "/root/.ssh/proj/requirements.txt",
		"--wdir=/root/.ssh/proj", "-genv", "PYTHONPATH", "/root/.ssh/proj/lib", "--ship", "/root/.ssh/venv/bin/env", "python3", "/root/.ssh/proj/train.py", "--tell", "--steps", "20", "--commit", "1", "--pause", "0.02", "--until", until)
	home("rm -r /root/.ssh/proj /root/.cache/gorun")
	j.awaitLogs(`is rank 1 of 2`)
	j.Boot(2)
	j.awaitLogs(`is rank 2 of 3 from step [1-9]`)
	if out := j.logs(); strings.Count(out, "has secret True") != 3 {
		t.Errorf("not all of 3 ranks have all\n%s", out)
	}
	s.Await("host3 as an elector, without whom host1 is a minority", func() bool {
		_, err := s.Host(3).Exec(t.Context(), "sh", "-c", "ls /root/.cache/gorun/state/gorun/failover/host3/*.json")
		return err == nil
	})
	j.PowerOff(1)
	j.awaitLogs(`goes on by the launcher on host`)
	j.awaitLogs(`is rank 1 of 2 from step [1-9]`)
	j.Boot(1) // it has nothing by then
	j.awaitLogs(`is rank 2 of 3 from step [1-9]`)
	must.Do(t, os.WriteFile(until, nil, 0o600))
	j.awaitLogs(`done rank 0 of 3`)
	home("printf -- '--no-index\\nnothing\\n' >/root/.ssh/none.txt")
	r := s.GorunBeside(append(s.Args, "--detach", "--python", "/root/.ssh/none.txt", "python3", "-c", "1")...)
	if r.Code != 2 || !strings.Contains(r.Stderr, "gorun: error: --python /root/.ssh/none.txt: for Python 3") || !strings.Contains(r.Stderr, "hint: packages come from PyPI") {
		t.Errorf("exit code %d\n%s", r.Code, r.Stderr)
	}
	s.ExpectIdle()
}
