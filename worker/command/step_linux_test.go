package command

import (
	"slices"
	"testing"
)

// TestUnscheduled: ranks have no variables of the step, and keep those of the user that resemble them.
func TestUnscheduled(t *testing.T) {
	user := []string{"LS_COLORS=di=01;34", "PE_ENV=GNU", "PE_PKGCONFIG_LIBS=mpich", "JOB_IDENTITY=x", "HOME=/home/ann"}
	of := []string{"SLURM_PROCID=1", "SLURMD_NODENAME=n1", "SRUN_DEBUG=3", "PMI_RANK=1", "PMIX_RANK=1", "PBS_TASKNUM=2",
		"LSB_HOSTS=n1 n2", "LS_JOBPID=17", "LS_SUBCWD=/home/ann", "LS_EXEC_T=START",
		"PE=mpi", "PE_HOSTFILE=/spool/pe_hostfile", "JOB_ID=17"}
	if got := unscheduled(slices.Concat(of, user)); !slices.Equal(got, user) {
		t.Errorf("got %q", got)
	}
}
