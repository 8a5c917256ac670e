//go:build linux

package slurm

import (
	"flag"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

var figures = flag.Bool("figures", false, "measure launches")

// TestLaunchFigures measures a launch of 64 ranks on 4 nodes of one allocation: by srun alone with its PMI, and by gorun over
// srun and over ssh. The program is MPICH's, and all ranks meet in a barrier.
func TestLaunchFigures(t *testing.T) {
	if !*figures {
		t.Skip("a part of make slurm: go test -run TestLaunchFigures -figures ./contrib/e2e/slurm")
	}
	c := newSlurm(t, 4, 16)
	program := filepath.Join(c.dir, "meet")
	c.write("meet.c", "#include <mpi.h>\nint main(void) { MPI_Init(0, 0); MPI_Barrier(MPI_COMM_WORLD); MPI_Finalize(); return 0; }\n", 0o644)
	if out, err := exec.Command("mpicc.mpich", "-o", program, program+".c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The launcher is on the login node, which has a key for ssh to all nodes.
	hold := c.slurm("salloc", "--no-shell", "-N4", "--ntasks-per-node=16", "-J", "figures")
	if hold.Code != 0 {
		t.Fatal(hold.Stderr)
	}
	job := lines(c.slurm("squeue", "-h", "-n", "figures", "-o", "%i").Stdout)[0]
	ways := []struct {
		name string
		args []string
	}{
		{"srun --mpi=pmi2", []string{"srun", "--overlap", "--jobid=" + job, "-N4", "-n64", "--mpi=pmi2", program}},
		{"gorun by srun", []string{"env", "SLURM_JOB_ID=" + job, "SLURM_CLUSTER_NAME=lab", "SLURM_JOB_NODELIST=host[1-4]", "SLURM_TASKS_PER_NODE=16(x4)", c.Binary, "--launcher", "srun", program}},
		{"gorun by ssh", []string{c.Binary, "--launcher", "ssh", "-H", "host[1-4]:16", program}},
	}
	took := map[string][]time.Duration{}
	for round := range 6 {
		for _, way := range ways {
			begin := time.Now()
			var r e2etest.Result
			if r = c.slurm(way.args[0], way.args[1:]...); r.Code != 0 {
				t.Fatalf("%s: exit code %d: %s%s", way.name, r.Code, r.Stdout, r.Stderr)
			}
			if round > 0 { // the first one brings the binary over ssh
				took[way.name] = append(took[way.name], time.Since(begin))
			}
		}
	}
	for _, way := range ways {
		all := took[way.name]
		slices.Sort(all)
		t.Logf("%-16s median %v, %v to %v", way.name, all[len(all)/2].Round(time.Millisecond), all[0].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	}
}
