//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMPICH starts an unmodified program of the MPICH family: gorun is what mpiexec would be.
func TestMPICH(t *testing.T) {
	compiler, err := exec.LookPath("mpicc.mpich")
	if err != nil {
		t.Skip("install libmpich-dev and mpich")
	}
	c := newCluster(t, 2)
	program := filepath.Join(c.root, "build", "mpi_ring")
	if out, err := exec.Command(compiler, "-o", program, filepath.Join(c.root, "testdata/mpi/ring.c")).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	// On lab hosts, which are one machine, UCX would take shared memory for a way between them.
	way := func(hosts string) string {
		if !strings.Contains(hosts, ",") {
			return "ONE_HOST=yes"
		}
		return "UCX_TLS=tcp,self"
	}
	run := func(hosts, how string) result {
		return c.gorun("-np", "4", "-H", hosts, "env", way(hosts), "timeout", "60", program, how)
	}
	for _, hosts := range []string{"host1:4", "host1:2,host2:2", "host1:1,host2:3"} {
		t.Run(hosts, func(t *testing.T) {
			r := run(hosts, "ok")
			if r.code != 0 {
				t.Fatalf("exit code %d\n%s", r.code, r.stderr)
			}
			if strings.Contains(r.stderr, "Open MPI") {
				t.Errorf("MPICH was taken for Open MPI:\n%s", r.stderr)
			}
			where := 0
			for rank := range 4 {
				token := []int{6, 1, 3, 6}[rank]
				if line := fmt.Sprintf("token %d, 0 wrong", token); !strings.Contains(r.stdout, fmt.Sprintf("rank %d of 4 on ", rank)) || !strings.Contains(r.stdout, line) {
					t.Errorf("rank %d: want %q in\n%s", rank, line, r.stdout)
				}
			}
			for _, h := range []string{"on host1:", "on host2:"} {
				if strings.Contains(r.stdout, h) {
					where++
				}
			}
			if want := strings.Count(hosts, ",") + 1; where != want {
				t.Errorf("ranks ran on %d hosts, want %d:\n%s", where, want, r.stdout)
			}
		})
	}
	t.Run("by a port", func(t *testing.T) {
		// The wrapper closes what is inherited, as sudo does.
		r := c.gorun("-np", "2", "-H", "host1:1,host2:1", "--pmi-port", "--rank-wrapper", `sh -c 'exec 3>&-; exec "$@"' sh`, "env", "UCX_TLS=tcp,self", "timeout", "60", program, "ok")
		if r.code != 0 || !strings.Contains(r.stdout, "rank 0 of 2 on host1: ") || !strings.Contains(r.stdout, "rank 1 of 2 on host2: ") {
			t.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
		}
	})
	t.Run("names", func(t *testing.T) {
		names := filepath.Join(c.root, "build", "mpi_names")
		if out, err := exec.Command(compiler, "-o", names, filepath.Join(c.root, "testdata/mpi/names.c")).CombinedOutput(); err != nil {
			t.Fatalf("compile: %v\n%s", err, out)
		}
		want, err := exec.Command("timeout", "60", "mpiexec.hydra", "-n", "4", names).Output()
		if err != nil {
			t.Fatalf("mpiexec.hydra: %v", err)
		}
		sorted := func(text string) string { return strings.Join(slices.Sorted(strings.Lines(text)), "") }
		for _, hosts := range []string{"host1:4", "host1:2,host2:2"} {
			r := c.gorun("-np", "4", "--no-tag-output", "-H", hosts, "env", way(hosts), "timeout", "60", names)
			if r.code != 0 || sorted(r.stdout) != sorted(string(want)) {
				t.Errorf("on %s: exit code %d\n%s\nwant what Hydra's ranks are told:\n%s\n%s", hosts, r.code, sorted(r.stdout), sorted(string(want)), r.stderr)
			}
		}
	})
	t.Run("two programs", func(t *testing.T) {
		part := []string{"env", "UCX_TLS=tcp,self", "timeout", "60", program, "ok"}
		r := c.gorun(slices.Concat([]string{"-H", "host1:2,host2:1", "-np", "1"}, part, []string{":", "-np", "2"}, part)...)
		for rank, number := range []int{0, 1, 1} {
			if line := fmt.Sprintf("rank %d of 3 on host%d: token %d, 0 wrong, program %d\n", rank, rank/2+1, []int{3, 1, 3}[rank], number); !strings.Contains(r.stdout, line) {
				t.Errorf("exit code %d, no %q in\n%s\n%s", r.code, line, r.stdout, r.stderr)
			}
		}
	})
	for how, want := range map[string]struct {
		code int
		says string
	}{
		"abort": {7, "gorun: error: rank 3 on host2 exited with status 7"},
		"crash": {128 + 6, "gorun: error: rank 3 on host2 was killed by signal 6"},
		// The others would wait for it for ever.
		"exit":  {1, "gorun: error: rank 3 on host2 exited without MPI_Finalize"},
		"early": {1, "gorun: error: host2: run: rank 3 has ended, and rank"},
	} {
		t.Run(how, func(t *testing.T) {
			if r := run("host1:2,host2:2", how); r.code != want.code || !strings.Contains(r.stderr, want.says) {
				t.Errorf("exit code %d, want %d and %q\n%s", r.code, want.code, want.says, r.stderr)
			}
		})
	}
}

// TestOpenMPI starts an unmodified Open MPI program by its own mpirun, which reaches the hosts by gorun.
func TestOpenMPI(t *testing.T) {
	compiler, err := exec.LookPath("mpicc.openmpi")
	if err != nil {
		t.Skip("install libopenmpi-dev and openmpi-bin")
	}
	c := newCluster(t, 2)
	program := filepath.Join(c.root, "build", "openmpi_ring")
	if out, err := exec.Command(compiler, "-o", program, filepath.Join(c.root, "testdata/mpi/ring.c")).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	// On lab hosts, which are one machine, only TCP leads from one to another.
	mpirun := func(args ...string) result {
		var stdout, stderr strings.Builder
		cmd := c.Launcher().Command(t.Context(), "timeout", append([]string{"120", "mpirun.openmpi", "--allow-run-as-root",
			"--mca", "plm_rsh_agent", c.binary + " rsh-agent", "--mca", "btl", "tcp,self", "--mca", "pml", "ob1"}, args...)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Run()
		return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
	r := mpirun("-np", "4", "-H", "host1:2,host2:2", program, "ok")
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	for rank, token := range []int{6, 1, 3, 6} {
		if want := fmt.Sprintf("rank %d of 4 on host%d: token %d, 0 wrong", rank, rank/2+1, token); !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
	// Without its mpirun its ranks know nothing of each other, and gorun says so.
	if r := c.gorun("-np", "2", "-H", "host1:2", "env", program, "ok"); strings.Contains(r.stderr, "Open MPI") {
		t.Errorf("gorun looked into what is not the program:\n%s", r.stderr)
	}
	if r := c.gorun("-np", "2", "-H", "host1:2", program, "ok"); !strings.Contains(r.stderr, "gorun: warning: "+program+" is a program of Open MPI, each of whose 2 ranks will find itself alone; start it by: mpirun ") {
		t.Errorf("no warning of singletons: exit code %d\n%s", r.code, r.stderr)
	}
	if r := mpirun("-np", "4", "-H", "host1:2,host2:2", program, "abort"); r.code != 7 {
		t.Errorf("abort: exit code %d\n%s", r.code, r.stderr)
	}
	if r := mpirun("-np", "2", "-H", "host1,nowhere", program, "ok"); r.code == 0 || !strings.Contains(r.stderr, "gorun: error: nowhere: resolve: ") {
		t.Errorf("a host that is not there: exit code %d\n%s", r.code, r.stderr)
	}
}

// TestOpenMPILeavesNothing: Open MPI's daemons end, and what they started, when its mpirun or the agents by which it
// reached the hosts are killed.
func TestOpenMPILeavesNothing(t *testing.T) {
	if _, err := exec.LookPath("mpirun.openmpi"); err != nil {
		t.Skip("install openmpi-bin")
	}
	for _, victim := range []string{"mpirun.openmpi", "gorun rsh-agent"} {
		t.Run(victim, func(t *testing.T) {
			c := newCluster(t, 2)
			var stderr strings.Builder
			cmd := c.Launcher().Command(t.Context(), "mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_agent", c.binary+" rsh-agent",
				"-np", "2", "-H", "host1:1,host2:1", "sleep", "300")
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			running := func() (n int) {
				for _, h := range c.Hosts() {
					for _, p := range h.Processes() {
						if strings.Contains(p.Args, "sleep 300") {
							n++
						}
					}
				}
				return n
			}
			c.await("program", func() bool { return running() == 2 })
			killed := 0
			for _, p := range c.Launcher().Processes() {
				if program := strings.TrimPrefix(p.Args, filepath.Dir(c.binary)+"/"); strings.HasPrefix(program, victim) {
					syscall.Kill(p.PID, syscall.SIGKILL)
					killed++
				}
			}
			if killed == 0 {
				t.Error("nothing was killed")
			}
			cmd.Wait()
			for _, h := range c.Hosts() { // what a killed mpirun leaves in its own /tmp is its own affair
				var left []string
				for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
					if left = h.Leftovers(); len(left) == 0 {
						break
					}
				}
				if len(left) > 0 {
					t.Errorf("left on %s:\n%s\n%s", h.Name(), strings.Join(left, "\n"), &stderr)
				}
			}
		})
	}
}
