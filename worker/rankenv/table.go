package rankenv

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

var table = slices.Concat(placed, fixed, defaults)

// placed variables tell a rank who it is, in the words of each launcher that programs are written for.
var placed = []Variable{
	always(Gorun, Place, "GORUN_RANK", rank),
	always(Gorun, Place, "GORUN_SIZE", size),
	always(Gorun, Place, "GORUN_LOCAL_RANK", localRank),
	always(Gorun, Place, "GORUN_LOCAL_SIZE", localSize),
	noted("the numbers above are not yet true; `init()` sets them and removes this one",
		given(Gorun, Place, "GORUN_SPARE", constant("1"), "`--spares`, before the first world of a rank", func(f *Facts) bool { return f.Spare })),
	// A launcher that a rank has started gives its programs a higher one (cmd/gorun/nested.go).
	noted("counts jobs that a rank of another job has started", always(Gorun, Place, "GORUN_DEPTH", constant("1"))),

	always(Horovod, Place, "HOROVOD_RANK", rank),
	always(Horovod, Place, "HOROVOD_SIZE", size),
	always(Horovod, Place, "HOROVOD_LOCAL_RANK", localRank),
	always(Horovod, Place, "HOROVOD_LOCAL_SIZE", localSize),
	always(Horovod, Place, "HOROVOD_CROSS_RANK", crossRank),
	always(Horovod, Place, "HOROVOD_CROSS_SIZE", crossSize),
	always(Horovod, Place, "HOROVOD_HOSTNAME", host),

	always(Torchrun, Place, "RANK", rank),
	always(Torchrun, Place, "WORLD_SIZE", size),
	always(Torchrun, Place, "LOCAL_RANK", localRank),
	always(Torchrun, Place, "LOCAL_WORLD_SIZE", localSize),
	always(Torchrun, Place, "GROUP_RANK", group),
	always(Torchrun, Place, "GROUP_WORLD_SIZE", groups),
	always(Torchrun, Place, "ROLE_NAME", constant("default")),
	always(Torchrun, Place, "ROLE_RANK", rank),
	always(Torchrun, Place, "ROLE_WORLD_SIZE", size),
	always(Torchrun, Place, "TORCHELASTIC_RUN_ID", job),
	// With --max-restarts the launcher gives its programs these two (cmd/gorun/restart.go), which wins over the table.
	noted("counts restarts with `--max-restarts`", always(Torchrun, Place, "TORCHELASTIC_RESTART_COUNT", constant("0"))),
	noted("the number given to `--max-restarts`", always(Torchrun, Place, "TORCHELASTIC_MAX_RESTARTS", constant("0"))),
	always(Torchrun, Place, "TORCHELASTIC_USE_AGENT_STORE", constant("False")),

	always(Launchers, Place, "LOCAL_SIZE", localSize),
	always(Launchers, Place, "CROSS_RANK", crossRank),
	always(Launchers, Place, "CROSS_SIZE", crossSize),
	always(Launchers, Place, "NODE_RANK", group),

	always(JAX, Place, "JAX_PROCESS_ID", rank),
	always(JAX, Place, "JAX_NUM_PROCESSES", size),
	always(JAX, Place, "JAX_PROCESS_COUNT", size),

	always(Python, Place, "PYTHONUNBUFFERED", constant("1")),

	given(Horovod, Place, "HOROVOD_ELASTIC", constant("1"), "elastic jobs", func(f *Facts) bool { return f.Elastic }),
}

// fixed variables are known when the daemons are up. No value of the user's could be right.
var fixed = []Variable{
	given(Shell, Fixed, "PWD", func(f *Facts) string { return f.Dir },
		"the job has a directory", func(f *Facts) bool { return f.Dir != "" }),
	always(Torchrun, Fixed, "MASTER_ADDR", func(f *Facts) string { return f.MasterAddr }),
	always(Torchrun, Fixed, "MASTER_PORT", func(f *Facts) string { return strconv.Itoa(f.MasterPort) }),
	// Package proc recognises the processes of a job by these two, and sets them itself.
	always(Gorun, Fixed, "GORUN_JOB", job),
	always(Gorun, Fixed, "GORUN_PROCESS", func(f *Facts) string { return strconv.Itoa(f.Process) }),
	always(Gorun, Fixed, "GORUN_SOCKET", func(f *Facts) string { return f.Socket }),
	always(Gorun, Fixed, "GORUN_TOKEN", func(f *Facts) string { return f.Token }),
	noted("your value follows gorun's", always(Python, Fixed, "PYTHONPATH", pythonPath)),
	noted("your value follows the environment's programs", given(Shell, Fixed, "PATH", func(f *Facts) string { return f.Python + "/bin:" + cmp.Or(f.programs, "/usr/local/bin:/usr/bin:/bin") },
		bringsPython, hasPython)),
	given(Python, Fixed, "VIRTUAL_ENV", func(f *Facts) string { return f.Python }, bringsPython, hasPython),

	given(MPI, Fixed, "PMI_RANK", rank, firstWorld, hasPMI),
	given(MPI, Fixed, "PMI_SIZE", size, firstWorld, hasPMI),
	given(MPI, Fixed, "MPI_LOCALRANKID", localRank, firstWorld, hasPMI),
	given(MPI, Fixed, "MPI_LOCALNRANKS", localSize, firstWorld, hasPMI),
	given(MPI, Fixed, "PMI_PORT", func(f *Facts) string { return f.PMI.Port }, pmiAtPort, hasPMIPort),
	given(MPI, Fixed, "PMI_ID", func(f *Facts) string { return strconv.Itoa(f.PMI.ID) }, pmiAtPort, hasPMIPort),
	given(MPI, Fixed, "PMI_FD", constant("3"),
		firstWorld+", without --pmi-port", func(f *Facts) bool { return hasPMI(f) && !hasPMIPort(f) }),

	given(Gorun, Fixed, "GORUN_COUNTERS", func(f *Facts) string { return f.Counters },
		"the host has memory for them", func(f *Facts) bool { return f.Counters != "" }),
	given(Gorun, Fixed, "GORUN_STACKS", func(f *Facts) string { return f.Stacks },
		"the daemon has descriptors for them", func(f *Facts) bool { return f.Stacks != "" }),
	given(Gorun, Fixed, "GORUN_SPARE_CPUS", spareCPUs,
		"ranks bound to cores of their own", func(f *Facts) bool { return len(f.SpareCPUs) > 0 }),
}

// defaults are what a framework wants and a user may know better.
var defaults = []Variable{
	always(OpenMP, Default, "OMP_NUM_THREADS", func(f *Facts) string { return strconv.Itoa(f.Threads) }),
	// As torchrun does: or a rank whose peer died hangs in NCCL.
	always(Torchrun, Default, "TORCH_NCCL_ASYNC_ERROR_HANDLING", constant("1")),
	given(JAX, Default, "JAX_COORDINATOR_ADDRESS", func(f *Facts) string { return f.Coordinator },
		"the first host's port is known", func(f *Facts) bool { return f.Coordinator != "" }),
	given(JAX, Default, "JAX_CPU_COLLECTIVES_IMPLEMENTATION", constant("mpi"), jaxEngine, hasJAXEngine),
	given(JAX, Default, "MPITRAMPOLINE_LIB", func(f *Facts) string { return f.MPILibrary }, jaxEngine, hasJAXEngine),
	// Open MPI's: jax.distributed.initialize() without arguments finds the other processes by them.
	given(JAX, Default, "OMPI_MCA_orte_hnp_uri", func(f *Facts) string { return "0.0;tcp://" + f.MasterAddr + ":0" }, jaxEngine, hasJAXEngine),
	given(JAX, Default, "OMPI_COMM_WORLD_SIZE", size, jaxEngine, hasJAXEngine),
	given(JAX, Default, "OMPI_COMM_WORLD_RANK", rank, jaxEngine, hasJAXEngine),
	given(JAX, Default, "OMPI_COMM_WORLD_LOCAL_RANK", deviceOfJAX, jaxEngine, hasJAXEngine),
	// Or each rank of accelerate, and of HF Trainer, trains alone without a word.
	given(Accelerate, Default, "ACCELERATE_USE_CPU", constant("true"),
		"hosts without a GPU or its like", func(f *Facts) bool { return !f.Accelerator }),
	given(Gorun, Default, "GORUN_VERBOSE", constant("1"), "--verbose", func(f *Facts) bool { return f.Verbose }),
	given(TensorFlow, Default, "TF_CONFIG", tfConfig,
		"--tf-config", func(f *Facts) bool { return len(f.Workers) > 0 }),
	given(CUDA, Default, "CUDA_VISIBLE_DEVICES", func(f *Facts) string { return f.GPU },
		"--gpus", func(f *Facts) bool { return f.GPU != "" }),
	given(Gorun, Default, "GORUN_GPU_PATH", func(f *Facts) string { return f.GPUPath },
		"--gpu-path other than host", func(f *Facts) bool { return f.GPUPath != "" && f.GPUPath != "host" }),

	// By themselves, Gloo, TensorPipe and MPICH take the address of the host's name, which many hosts have as 127.0.1.1, and
	// the others any interface that is up. NCCL takes a name for a prefix, unless it begins with an equals sign.
	given(NIC, Default, "NCCL_SOCKET_IFNAME", func(f *Facts) string { return "=" + strings.Join(nics(f), ",") },
		toOthers+", unless nccl.conf has it", func(f *Facts) bool { return hasNICs(f) || hasNIC(f) && !f.NCCLBy }),
	given(NIC, Default, "GLOO_SOCKET_IFNAME", firstNIC, toOthers, hasNIC),
	given(NIC, Default, "TP_SOCKET_IFNAME", firstNIC, toOthers, hasNIC),
	given(NIC, Default, "FI_TCP_IFACE", firstNIC, toOthers, hasNIC),
	given(NIC, Default, "UCX_NET_DEVICES", func(f *Facts) string { return strings.Join(nics(f), ",") },
		otherHosts+", and this one no RDMA device", func(f *Facts) bool { return f.Addr != "" && !f.RDMA }),
	given(MPI, Default, "MPIR_CVAR_CH3_INTERFACE_HOSTNAME", func(f *Facts) string { return f.Addr },
		otherHosts, func(f *Facts) bool { return f.Addr != "" }),

	given(Horovod, Default, "HOROVOD_CONTROLLER", constant("gloo"), stockHorovod, hasStock),
	given(Horovod, Default, "HOROVOD_CPU_OPERATIONS", constant("gloo"), stockHorovod, hasStock),
	given(Horovod, Default, "HOROVOD_GLOO_RENDEZVOUS_ADDR", func(f *Facts) string { return f.Stock.Addr },
		stockHorovod, hasStock),
	given(Horovod, Default, "HOROVOD_GLOO_RENDEZVOUS_PORT", func(f *Facts) string { return strconv.Itoa(f.Stock.Port) }, stockHorovod, hasStock),
	given(Horovod, Default, "HOROVOD_GLOO_IFACE", glooNIC,
		chosenNICs+"; or "+stockHorovod, func(f *Facts) bool { return glooNIC(f) != "" }),
}

func always(c Contract, by Rule, name string, value func(*Facts) string) Variable {
	return Variable{Name: name, Contract: c, Rule: by, value: value}
}

// noted returns v with a note for users.
func noted(note string, v Variable) Variable {
	v.Note = note
	return v
}

func given(c Contract, by Rule, name string, value func(*Facts) string, when string, holds func(*Facts) bool) Variable {
	return Variable{Name: name, Contract: c, Rule: by, When: when, holds: holds, value: value}
}

// Conditions that several variables have.
const (
	firstWorld   = "the first world of a job"
	pmiAtPort    = "--pmi-port"
	chosenNICs   = "--network-interfaces"
	otherHosts   = "the job has other hosts"
	toOthers     = chosenNICs + "; or " + otherHosts
	stockHorovod = "--no-horovod-shim"
	jaxEngine    = "--jax-engine"
)

func hasPMI(f *Facts) bool       { return f.PMI != nil }
func hasPMIPort(f *Facts) bool   { return f.PMI != nil && f.PMI.Port != "" }
func hasNICs(f *Facts) bool      { return len(f.NICs) > 0 }
func hasNIC(f *Facts) bool       { return len(nics(f)) > 0 }
func hasStock(f *Facts) bool     { return f.Stock != nil }
func hasJAXEngine(f *Facts) bool { return f.MPILibrary != "" }

// Values that several variables have.
func job(f *Facts) string       { return f.Job }
func host(f *Facts) string      { return f.Host }
func rank(f *Facts) string      { return strconv.Itoa(f.Rank) }
func size(f *Facts) string      { return strconv.Itoa(f.Size) }
func localRank(f *Facts) string { return strconv.Itoa(f.LocalRank) }
func localSize(f *Facts) string { return strconv.Itoa(f.LocalSize) }
func crossRank(f *Facts) string { return strconv.Itoa(f.CrossRank) }
func crossSize(f *Facts) string { return strconv.Itoa(f.CrossSize) }
func group(f *Facts) string     { return strconv.Itoa(f.Group) }
func groups(f *Facts) string    { return strconv.Itoa(f.Groups) }

const bringsPython = "with --python"

func hasPython(f *Facts) bool { return f.Python != "" }

func constant(value string) func(*Facts) string { return func(*Facts) string { return value } }

// pythonPath puts the binding, which is a zip inside the binary, in front of the user's PYTHONPATH.
func pythonPath(f *Facts) string {
	path := []string{f.Binary}
	if f.DropIn {
		path = append(path, f.Binary+"/shim")
	}
	if f.userPath != "" {
		path = append(path, f.userPath)
	}
	return strings.Join(path, ":")
}

// spareCPUs lists where the processes run that the rank's Python forks, such as its data loaders: they would
// get the rank's own CPUs otherwise.
func spareCPUs(f *Facts) string {
	var list []string
	for _, cpu := range f.SpareCPUs {
		list = append(list, strconv.Itoa(cpu))
	}
	return strings.Join(list, ",")
}

// nics are the interfaces that the user chose, or else the one at which the others find the host.
func nics(f *Facts) []string {
	if hasNICs(f) || f.NIC == "" {
		return f.NICs
	}
	return []string{f.NIC}
}

func firstNIC(f *Facts) string { return nics(f)[0] }

// glooNIC is the interface over which Horovod's Gloo goes: the user's, or the one whose address the others know.
func glooNIC(f *Facts) string {
	chosen, reached := "", ""
	if hasNICs(f) {
		chosen = f.NICs[0]
	}
	if hasStock(f) {
		reached = f.Stock.NIC
	}
	return cmp.Or(chosen, reached)
}
