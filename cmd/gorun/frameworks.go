package main

import (
	"slices"
	"strings"
)

// frameworkHints say what a framework's own error leaves out: what it wants of a program that gorun has started.
// docs/frameworks.md says more.
var frameworkHints = []struct{ said, hint string }{
	{"nknown backend type gorun", registerBackend},
	{"nknown c10d backend type GORUN", registerBackend}, // before torch 2
	{"Your assigned backend gorun is not available", `on CPUs accelerate takes the process group that is there: call torch.distributed.init_process_group("gorun") first, and name no backend`},
	{"Number of processes must be defined", `JAX asks for both: jax.distributed.initialize(num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"]))`},
	{"libmpi.so.12: cannot open shared object file", wheelOfMPICH},
	{"cannot load MPI library", wheelOfMPICH},
}

const (
	registerBackend = "import gorun.torch.distributed: that makes the backend known"
	wheelOfMPICH    = "mpi4py of pip finds the MPICH of pip: pip install mpich"
)

// frameworkHint returns what to do about the last lines of a rank, "" if that is not known.
func frameworkHint(tail string) string {
	for _, h := range frameworkHints {
		if strings.Contains(tail, h.said) {
			return h.hint
		}
	}
	return ""
}

// errorFile notes that gorun, unlike torchrun, does not write the first exception of a rank to a file.
func errorFile(environ []string, programs []program) (notes []string) {
	const name = "TORCHELASTIC_ERROR_FILE"
	set := func(env []string) bool {
		return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") && len(kv) > len(name)+1 })
	}
	if !set(environ) || slices.ContainsFunc(programs, func(p program) bool { return set(p.Env) }) {
		return nil
	}
	return []string{"gorun: " + name + " is not passed on: gorun shows what the first rank that fails wrote last; with -x " + name +
		" the ranks of each host write to that file"}
}
