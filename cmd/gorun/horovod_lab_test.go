//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/lab"
)

// TestStockHorovod runs a program with Horovod's own library, which finds its ranks by gorun.
func TestStockHorovod(t *testing.T) {
	python := os.Getenv("HOROVOD_PYTHON")
	if python == "" {
		t.Skip("set HOROVOD_PYTHON to a Python with stock Horovod, built with Gloo; make compat-lab builds one")
	}
	t.Parallel()
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	// Hosts of a lab have a /tmp of their own; the Python may lie there.
	l := lab.ForTest(t, 2, lab.Options{Share: []string{filepath.Dir(filepath.Dir(python))}})
	c := &cluster{l, t, binary, filepath.Dir(filepath.Dir(binary))}
	for _, hosts := range []string{"host1:3", "host1:2,host2:1", "host1:1,host2:1"} {
		t.Run(hosts, func(t *testing.T) {
			ranks := map[string]string{"host1:3": "3", "host1:2,host2:1": "3", "host1:1,host2:1": "2"}[hosts]
			r := c.gorun("--no-horovod-shim", "-np", ranks, "-H", hosts, python, "contrib/examples/digits_torch.py")
			if r.code != 0 || !strings.Contains(r.stdout, "accuracy") {
				t.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
			}
			if which := c.gorun("--no-horovod-shim", "-np", "1", "-H", "host1", python, "-c", "import horovod.torch as h; print(h.__file__)"); strings.Contains(which.stdout, "gorun") {
				t.Errorf("this is not stock Horovod: %s", which.stdout)
			}
		})
	}
}
