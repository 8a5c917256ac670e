package python

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// TestFrameworks: programs of accelerate, DeepSpeed, JAX, mpi4py, TensorFlow and transformers find each other on two hosts by
// what these read themselves.
func TestFrameworks(t *testing.T) {
	python := os.Getenv("FRAMEWORKS_PYTHON")
	if python == "" {
		t.Skip("set FRAMEWORKS_PYTHON to a Python with the frameworks of docs/guides: make frameworks")
	}
	c := e2etest.NewCluster(t, 2)
	scripts, err := filepath.Glob(filepath.Join(c.Root, "testdata/frameworks/*_sum.py"))
	if err != nil || len(scripts) != 6 {
		t.Fatalf("found %q, %v", scripts, err)
	}
	for _, script := range scripts {
		framework := strings.TrimSuffix(filepath.Base(script), "_sum.py")
		t.Run(framework, func(t *testing.T) {
			r := c.Gorun("--tf-config", "-np", "4", "-H", "host1:2,host2:2", "--no-tag-output",
				"-x", "KERAS_HOME=/root/.cache/gorun/keras", "-x", "HF_HOME=/root/.cache/gorun/hf", python, script) // where Leftovers does not look
			for rank := range 4 {
				if want := fmt.Sprintf("%s: rank %d of 4 has 10\n", framework, rank); r.Code != 0 || !strings.Contains(r.Stdout, want) {
					t.Fatalf("exit code %d, want %q in\n%s\n%s", r.Code, want, r.Stdout, r.Stderr)
				}
			}
		})
	}
}
