package python

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestTrainOnTwoHosts is the main job: an unmodified Horovod script, two hosts that have only sshd and
// Python, four ranks, one command.
func TestTrainOnTwoHosts(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	script := "contrib/examples/digits_torch.py"
	if exec.Command(e2etest.Python, "-c", "import torch, sklearn").Run() != nil {
		t.Skip("install python3-torch and python3-sklearn")
	}
	r := c.Gorun("-v", "-np", "4", "-H", "host1:2,host2:2", e2etest.Python, script).Good(t)
	if !strings.Contains(r.Stderr, "epoch 1, ring: host1 → host2 → (host1)") {
		t.Errorf("the ring is not shown:\n%s", r.Stderr)
	}
	found := regexp.MustCompile(`(?m)^\[0\]<stdout>:.*accuracy[^0-9]*([0-9.]+)`).FindAllStringSubmatch(r.Stdout, -1)
	if len(found) == 0 {
		t.Fatalf("no accuracy in\n%s", r.Stdout)
	}
	accuracy, err := strconv.ParseFloat(found[len(found)-1][1], 64)
	if err != nil || accuracy < 97 {
		t.Errorf("accuracy %v %% (%v), want at least 97\n%s", accuracy, err, r.Stdout)
	}
}

// TestPrograms runs the semantic checks of the Python binding over real ssh on two hosts: all by three ranks of which one is
// elsewhere, and each by one rank or by two that share memory. A job runs all of a world, one after the other, each in fresh
// processes and a new world: to import torch takes longer than most of them. The long tests run all in more worlds, each in a job.
func TestPrograms(t *testing.T) {
	t.Parallel()
	programs, err := filepath.Glob(filepath.Join(e2etest.Root(), "contrib/python/tests/mp/*.py"))
	if err != nil || len(programs) < 15 {
		t.Fatalf("found %d programs, error %v", len(programs), err)
	}
	for i, program := range programs {
		programs[i] = "contrib/python/tests/mp/" + filepath.Base(program)
	}
	worlds := []string{"host1:1", "host1:2", "host1:2,host2:1"}
	if testing.Short() {
		some := [][]string{nil, nil, programs}
		for i, program := range programs {
			world := min(i%3, 1) // a world of one has less to go wrong
			some[world] = append(some[world], program)
		}
		for i, hosts := range worlds {
			t.Run(hosts, func(t *testing.T) { runPrograms(t, some[i], hosts) })
		}
		return
	}
	worlds = append(worlds, "host1:1,host2:1", "host1:2,host2:2")
	for _, program := range programs {
		t.Run(strings.TrimSuffix(filepath.Base(program), ".py"), func(t *testing.T) { runProgram(t, program, worlds) })
	}
}

// runPrograms runs programs in one job.
func runPrograms(t *testing.T, programs []string, hosts string) {
	c := e2etest.NewCluster(t, 2)
	e2etest.NeedTorch(t)
	r := c.Gorun(append([]string{"-H", hosts, e2etest.Python, "testdata/python/programs.py"}, programs...)...)
	if r.Code != 0 {
		t.Errorf("exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	for _, program := range programs {
		if !strings.Contains(r.Stdout, "<stdout>:"+program+" has ended well\n") {
			t.Errorf("%s has not ended well", program)
		}
	}
}

// runProgram runs a program in a job for each world.
func runProgram(t *testing.T, program string, worlds []string) {
	c := e2etest.NewCluster(t, 2)
	source := must.Read(t, filepath.Join(c.Root, program))
	if strings.Contains(string(source), "torch") {
		e2etest.NeedTorch(t)
	}
	for _, hosts := range worlds {
		r := c.Gorun("-H", hosts, e2etest.Python, program)
		if r.Code != 0 {
			t.Errorf("-H %s: exit code %d\n%s\n%s", hosts, r.Code, r.Stdout, r.Stderr)
		}
	}
}
