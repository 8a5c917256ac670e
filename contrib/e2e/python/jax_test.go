package python

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// newJAXCluster returns a lab whose hosts have a Python with JAX, and that Python.
func newJAXCluster(t *testing.T) (string, *e2etest.Cluster) {
	python := os.Getenv("JAX_PYTHON")
	if python == "" {
		t.Skip("set JAX_PYTHON to a Python with JAX and optax: make jax")
	}
	share := []string{filepath.Dir(filepath.Dir(python))}
	base, err := exec.Command(python, "-c", "import sys; print(sys.base_prefix)").Output()
	must.Do(t, err)
	if prefix := strings.TrimSpace(string(base)); strings.HasPrefix(prefix, "/root/") || strings.HasPrefix(prefix, "/home/") {
		share = append(share, prefix)
	}
	return python, e2etest.NewClusterWith(t, 2, lab.Options{Share: share})
}

// TestJAX runs the programs about gorun.jax by one to four ranks of two hosts, and the example by four.
func TestJAX(t *testing.T) {
	python, c := newJAXCluster(t)
	programs, err := filepath.Glob(filepath.Join(c.Root, "contrib/python/tests/jax/*.py"))
	if err != nil || len(programs) != 3 {
		t.Fatalf("found %q, %v", programs, err)
	}
	for np, hosts := range map[int]string{1: "host1:1", 2: "host1:2", 3: "host1:2,host2:1", 4: "host1:2,host2:2"} {
		for _, program := range programs {
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(program), np), func(t *testing.T) {
				if r := c.Gorun("-H", hosts, python, "-B", program); r.Code != 0 {
					t.Errorf("exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
				}
			})
		}
	}
	example := []string{"-H", "host1:2,host2:2", "--no-tag-output", python, "-B", "contrib/examples/classify_jax.py", "--target", "0.7"}
	if r := c.Gorun(example...); r.Code != 0 || !strings.Contains(r.Stdout, "with 4 ranks\n") {
		t.Errorf("the example: exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
}

// TestJAXEngine: a program of JAX alone, on two hosts and on one, whose collectives run on gorun's engine.
func TestJAXEngine(t *testing.T) {
	python, c := newJAXCluster(t)
	for np, hosts := range map[int]string{2: "host1:1,host2:1", 3: "host1:2,host2:1", 4: "host1:2,host2:2"} {
		r := c.Gorun("--jax-engine", "gorun", "-H", hosts, "--no-tag-output", "-x", "JAX_PLATFORMS=cpu", python, "-B",
			"contrib/python/tests/jax/programs/mesh.py")
		if r.Code != 0 || strings.Count(r.Stdout, fmt.Sprintf(" of %d: trained to ", np)) != np {
			t.Errorf("-H %s: exit code %d\n%s\n%s", hosts, r.Code, r.Stdout, r.Stderr)
		}
	}
	r := c.Gorun("--jax-engine", "gorun", "-np", "1", e2etest.Python, "contrib/python/tests/jax/programs/missing.py")
	if want := "the program uses MPI_Gatherv, which gorun's engine does not have"; r.Code != 70 || !strings.Contains(r.Stderr, want) {
		t.Errorf("a function that is missing: exit code %d, want 70 and %q in\n%s", r.Code, want, r.Stderr)
	}
}

// TestJAXKilled: ranks go on when one of them is killed in the middle of training.
func TestJAXKilled(t *testing.T) {
	python, c := newJAXCluster(t)
	r := c.Gorun("--min-np", "2", "-H", "host1:2,host2:1", "--no-tag-output", "-x", "JAX_PLATFORMS=cpu", python, "-B",
		"contrib/python/tests/jax/programs/killed.py")
	for rank := range 2 {
		if want := fmt.Sprintf("rank %d: 30 steps, worlds of [2, 3]\n", rank); r.Code != 0 || !strings.Contains(r.Stdout, want) {
			t.Errorf("exit code %d, want %q in\n%s\n%s", r.Code, want, r.Stdout, r.Stderr)
		}
	}
}

// TestJAXForks: a child that a rank forks is refused by gorun, and no step of the rank notices it: with gorun.jax, and in a program
// of JAX alone.
func TestJAXForks(t *testing.T) {
	python, c := newJAXCluster(t)
	program := []string{"-H", "host1:1,host2:1", "--no-tag-output", "-x", "JAX_PLATFORMS=cpu", python, "-B",
		"contrib/python/tests/jax/programs/forks.py"}
	for way, args := range map[string][]string{
		"gorun.jax":  program,
		"JAX itself": append(append([]string{"--jax-engine", "gorun"}, program...), "--mesh"),
	} {
		if r := c.Gorun(args...); r.Code != 0 || strings.Count(r.Stdout, " of 2: ok\n") != 2 {
			t.Errorf("%s: exit code %d\n%s\n%s", way, r.Code, r.Stdout, r.Stderr)
		}
	}
}
