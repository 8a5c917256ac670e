package slurm

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// TestBatch: a script runs gorun on the first of its nodes, and its output, exit status and state are the job's; each task of
// an array is a job of its own; srun starts one gorun for all tasks.
func TestBatch(t *testing.T) {
	c := newSlurm(t, 2, 4)
	good := c.batch(`exec "$1" --no-tag-output sh -c '`+whoami+`'`, "-N2", "--ntasks-per-node=1")
	bad := c.batch(`exec "$1" sh -c 'exit $((RANK * 7))'`, "-N2", "--ntasks-per-node=1")
	array := c.batch(`exec "$1" --no-tag-output sh -c "echo $SLURM_ARRAY_TASK_ID \$RANK of \$WORLD_SIZE on \$(hostname)"`,
		"-N2", "--ntasks-per-node=1", "--array=0-1", "-o", c.dir+"/%A-%a.out", "-e", c.dir+"/%A-%a.err")
	task := c.batch(`srun "$1" --no-tag-output sh -c '`+whoami+`'`, "-N2", "--ntasks-per-node=2")
	for job, want := range map[string]string{good: "COMPLETED", bad: "FAILED", array + "_0": "COMPLETED", array + "_1": "COMPLETED", task: "COMPLETED"} {
		if got := c.ends(job); got != want {
			t.Errorf("job %s is %s, want %s: %s", job, got, want, c.read(job+".err"))
		}
	}
	if code := c.state(bad, "ExitCode"); code != "7:0" || !strings.Contains(c.read(bad+".err"), "gorun: error: rank 1 on host2 exited with status 7") {
		t.Errorf("exit code %s: %s", code, c.read(bad+".err"))
	}
	for file, want := range map[string][]string{
		good + ".out":    {"0 of 2 on host1 scrubbed scrubbed", "1 of 2 on host2 scrubbed scrubbed"},
		array + "-0.out": {"0 0 of 2 on host1", "0 1 of 2 on host2"},
		array + "-1.out": {"1 0 of 2 on host1", "1 1 of 2 on host2"},
		task + ".out": {"0 of 4 on host1 scrubbed scrubbed", "1 of 4 on host1 scrubbed scrubbed",
			"2 of 4 on host2 scrubbed scrubbed", "3 of 4 on host2 scrubbed scrubbed"},
	} {
		if got := lines(c.read(file)); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
	c.nothingLeft()
}

// TestHeterogeneous: the parts of a job have a step each, and are one world.
func TestHeterogeneous(t *testing.T) {
	long(t)
	c := newSlurm(t, 2, 4)
	r := c.slurm("salloc", "-Q", "-N1", "-n1", ":", "-N1", "-n3", c.Binary, "--no-tag-output", "sh", "-c", whoami)
	c.nothingLeft()
	got := lines(r.Stdout)
	if r.Code != 0 || len(got) != 4 || strings.Count(r.Stdout, " of 4 on host1 ")+strings.Count(r.Stdout, " of 4 on host2 ") != 4 ||
		!strings.HasPrefix(got[1], "1 of 4 on ") || strings.HasSuffix(got[0], got[1][len("1 of 4 on "):]) {
		t.Errorf("exit code %d, got %q\n%s", r.Code, got, r.Stderr)
	}
}

// TestWithoutSharedBinary: nodes that do not have the binary at the launcher's path get it by the step, and the program with --ship.
func TestWithoutSharedBinary(t *testing.T) {
	long(t)
	c := newSlurm(t, 2, 4)
	c.slurm("cp", c.Binary, "/root/gorun").Good(t)
	for range 2 {
		r := c.slurm("salloc", "-Q", "-N2", "--ntasks-per-node=1", "/root/gorun", "--no-tag-output", "sh", "-c", `echo $RANK; ls ~/.cache/gorun/*/gorun | wc -l`)
		if got := lines(r.Stdout); r.Code != 0 || !slices.Equal(got, []string{"0", "1", "1", "1"}) {
			t.Errorf("exit code %d, got %q\n%s", r.Code, got, r.Stderr)
		}
	}
	c.slurm("sh", "-c", "mkdir -p /root/.cache/proj; echo here >/root/.cache/proj/data; echo 'cat data' >/root/.cache/proj/run.sh").Good(t)
	r := c.slurm("salloc", "-Q", "-N2", "--ntasks-per-node=1", "/root/gorun", "--no-tag-output", "--wdir", "/root/.cache/proj", "--ship", "sh", "run.sh")
	if got := lines(r.Stdout); r.Code != 0 || !slices.Equal(got, []string{"here", "here"}) {
		t.Errorf("with --ship: exit code %d, got %q\n%s", r.Code, got, r.Stderr)
	}
	wheels, _ := c.Wheels()
	list := c.write("requirements.txt", "--no-index\n--find-links "+wheels+"\nnumpy\n", 0o644)
	python := []string{"--python", list, "python3", "-c", "import numpy, sys; print(numpy.__file__.startswith(sys.prefix) and 'bin/python3' in sys.executable)"}
	r = c.slurm("salloc", slices.Concat([]string{"-Q", "-N2", "--ntasks-per-node=1", "/root/gorun", "--no-tag-output"}, python)...)
	if got := lines(r.Stdout); r.Code != 0 || !slices.Equal(got, []string{"True", "True"}) {
		t.Errorf("with --python: exit code %d, got %q\n%s", r.Code, got, r.Stderr)
	}
	job := c.batch(`exec "$@" `+"--python "+list+" python3 -c 'import numpy; print(numpy.__name__)'", "-N2", "--ntasks-per-node=1")
	if state := c.ends(job); state != "COMPLETED" || strings.Count(c.read(job+".out"), "numpy") != 2 {
		t.Errorf("in a batch script: %s, %s%s", state, c.read(job+".out"), c.read(job+".err"))
	}
	c.nothingLeft()
}

// TestKilled: whichever process is killed, all others end, no step stays, and the node can be used again.
func TestKilled(t *testing.T) {
	long(t)
	c := newSlurm(t, 2, 4)
	for _, victim := range []struct {
		name string
		host int // 0 for the login node
		args string
		goes bool // the job goes on
	}{
		{"launcher", 0, c.Binary + " --no-tag-output", false},
		{"srun", 0, "srun --overlap", true},
		{"step process", 2, "gorun worker --step", true},
		{"slurmstepd", 2, "slurmstepd: [", true},
		{"supervisor", 2, "gorun worker --session", false},
		{"daemon", 2, "gorun worker --daemon", false},
		{"rank", 2, "sleep 1002", false},
	} {
		until := fmt.Sprintf("%s/end-%d-%s", c.dir, victim.host, strings.ReplaceAll(victim.name, " ", "-"))
		cmd, stdout, stderr := c.command("salloc", "-Q", "-N2", "--ntasks-per-node=1", c.Binary, "--no-tag-output", "sh", "-c",
			`sleep 1002 & echo ready; while [ ! -e `+until+` ]; do sleep 0.1; kill -0 $! || exit 9; done; kill $!; echo done $RANK`)
		must.Do(t, cmd.Start())
		c.Await("ranks", func() bool { return stdout.Count("ready") == 2 || cmd.ProcessState != nil })
		host := c.Launcher()
		if victim.host > 0 {
			host = c.Host(victim.host)
		}
		pid := c.find(host, victim.args)
		must.Do(t, syscall.Kill(pid, syscall.SIGKILL))
		if victim.goes {
			c.Await("end of the "+victim.name, func() bool { return syscall.Kill(pid, 0) != nil || zombie(pid) })
			must.Do(t, os.WriteFile(until, nil, 0o600))
		}
		cmd.Wait()
		code := cmd.ProcessState.ExitCode()
		if victim.goes != (code == 0 && stdout.Count("done") == 2) {
			t.Errorf("%s killed: exit code %d\n%s\n%s", victim.name, code, stdout, stderr)
		}
		t.Logf("%s killed: exit code %d: %s", victim.name, code, strings.TrimSpace(stderr.String()))
		c.nothingLeft()
		c.Await("nodes", func() bool {
			return strings.Count(c.slurm("sinfo", "-h", "-N", "-t", "idle", "-o", "%n").Stdout, "host") == 2
		})
	}
}

// find returns the process of a host whose command line contains a text.
func (c *cluster) find(h *lab.LabHost, text string) (pid int) {
	c.T.Helper()
	c.Await(text+" on "+h.Name(), func() bool {
		for _, p := range h.Processes() {
			if p.State != 'Z' && strings.Contains(p.Args, text) && !strings.HasPrefix(p.Args, "salloc") {
				pid = p.PID
			}
		}
		return pid != 0
	})
	return pid
}

func zombie(pid int) bool {
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(state), ") Z ")
}

// TestRefused: what srun refuses, and where it cannot be used, is one line with a hint.
func TestRefused(t *testing.T) {
	c := newSlurm(t, 1, 4)
	expect := func(r e2etest.Result, code int, texts ...string) {
		t.Helper()
		if r.Code != code || strings.Count(r.Stderr, "gorun: error: ") != 1 {
			t.Errorf("exit code %d, want %d: %s", r.Code, code, r.Stderr)
		}
		for _, text := range texts {
			if !strings.Contains(r.Stderr, text) {
				t.Errorf("without %q: %s", text, r.Stderr)
			}
		}
		c.nothingLeft()
	}
	expect(c.slurm(c.Binary, "--launcher", "srun", "true"), 2, "gorun: error: --launcher srun: this is no allocation of Slurm\n")
	expect(c.salloc([]string{"-N1"}, "--launcher", "srun", "-H", "host1,host9", "true"), 2, "host9 is not in Slurm job")
	expect(c.slurm("salloc", "-Q", "-N1", "sh", "-c", `scancel $SLURM_JOB_ID; sleep 2; exec "$0" true`, c.Binary), 255,
		"gorun: error: host1: start step: srun: error: ", "gorun: hint: the allocation has ended")
	gone := c.write("gone.conf", strings.ReplaceAll(c.read("slurm.conf"), "SlurmctldHost=launcher", "SlurmctldHost=host1\nSlurmctldTimeout=1\nMessageTimeout=2"), 0o644)
	expect(c.slurm("salloc", "-Q", "-N1", "env", "SLURM_CONF="+gone, c.Binary, "--start-timeout", "120", "true"), 255, "gorun: error: host1: start step: srun: ", "gorun: hint: ")
}
