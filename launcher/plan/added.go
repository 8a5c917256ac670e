package plan

import "slices"

// Additions are what of a job decides which variables its daemons add to those of Env: their values are known only on the
// hosts, when these are up.
type Additions struct {
	TF, Shim, PMIPort bool // of the job's flags
	GPUs              bool // are chosen from what a host has
	NICs              bool // were named
	Cores             bool // each rank has cores to itself
}

// Variables returns their names. Of those in unlessSet the daemons leave alone what the user has set.
func (a Additions) Variables() (always, unlessSet []string) {
	always = []string{"PWD", "MASTER_ADDR", "MASTER_PORT", "GORUN_PROCESS", "GORUN_SOCKET", "GORUN_TOKEN", "PYTHONPATH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}
	if a.PMIPort {
		always = append(always, "PMI_PORT", "PMI_ID")
	} else {
		always = append(always, "PMI_FD")
	}
	if a.Cores {
		always = append(always, "GORUN_SPARE_CPUS")
	}
	unlessSet = []string{"OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "JAX_COORDINATOR_ADDRESS", "ACCELERATE_USE_CPU"}
	if a.TF {
		unlessSet = append(unlessSet, "TF_CONFIG")
	}
	if a.GPUs {
		unlessSet = append(unlessSet, "CUDA_VISIBLE_DEVICES")
	}
	if a.NICs {
		unlessSet = append(unlessSet, "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE")
	}
	if !a.Shim {
		unlessSet = append(unlessSet, "HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS", "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT")
		if !slices.Contains(unlessSet, "HOROVOD_GLOO_IFACE") {
			unlessSet = append(unlessSet, "HOROVOD_GLOO_IFACE")
		}
	}
	return always, unlessSet
}
