package main

import (
	"strings"
	"testing"

	"gorun/launcher/failure"
)

// TestFrameworkHints: messages of frameworks, and what gorun adds to them.
func TestFrameworkHints(t *testing.T) {
	for said, want := range map[string]string{
		"AssertionError: Unknown backend type gorun":                                                                                                                          "import gorun.torch.distributed: that makes",
		"AssertionError: Unknown c10d backend type GORUN":                                                                                                                     "import gorun.torch.distributed: that makes",
		"ValueError: Your assigned backend gorun is not available, please use gloo":                                                                                           `on CPUs accelerate takes the process group that is there: call torch.distributed.init_process_group("gorun")`,
		"ValueError: Number of processes must be defined.":                                                                                                                    "JAX asks for both: jax.distributed.initialize(num_processes",
		"ImportError: libmpi.so.12: cannot open shared object file: No such file":                                                                                             "mpi4py of pip finds the MPICH of pip: pip install mpich",
		"RuntimeError: cannot load MPI library\nlibmpi.so: cannot open shared object file":                                                                                    "mpi4py of pip finds the MPICH of pip: pip install mpich",
		"MemoryError: allocate memory: create region of 134217728 bytes: ulimit -f is 100000 KiB, also for shared memory: file too large":                                     "allow larger files where gorun runs (ulimit -f unlimited)",
		"Abort(471423759) on node 0 (rank 0 in comm 0): Fatal error in internal_Comm_spawn: Other MPI error, error stack:\nMPID_Comm_spawn_multiple(86): Error in spawn call": "gorun refuses MPI_Comm_spawn: ",
		"ValueError: Your assigned backend nccl is not available, please use gloo":                                                                                            "",
	} {
		var b strings.Builder
		code := explain(&b, &failure.RankError{Rank: 1, Host: "a", Code: 1, Tail: []string{"Traceback (most recent call last):", said}})
		_, hint, found := strings.Cut(b.String(), "gorun: hint: ")
		if code != 1 || found != (want != "") || !strings.HasPrefix(hint, want) {
			t.Errorf("%s: exit code %d, said\n%s", said, code, &b)
		}
	}
}
