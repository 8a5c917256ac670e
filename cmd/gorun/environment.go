package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"
)

// variable is one that gorun reads, or several that mean the same.
type variable struct {
	names   []string
	meaning string
}

// variableGroup is a group of variables of the same use.
type variableGroup struct {
	title string
	list  []variable
}

// otherVariables are the variables that gorun and its bindings read, beside the tables of flags and of horovodrun's
// knobs. Package rankenv has the ones that gorun sets.
var otherVariables = []variableGroup{
	{"Where gorun runs", []variable{
		{[]string{"SSH_AUTH_SOCK"}, "socket of the ssh agent"},
		{[]string{"HOME"}, "where ~/.local is. ssh's files are in the home of the user database"},
		{[]string{"USER"}, "the user's name, if the system does not know it"},
		{[]string{"XDG_STATE_HOME"}, "where detached jobs are kept, instead of ~/.local/state"},
		{[]string{"XDG_CACHE_HOME"}, "where programs, their files and environments of Python are kept, instead of ~/.cache"},
		{[]string{"VIRTUAL_ENV", "CONDA_PREFIX"}, "which environment --python auto means"},
		{[]string{"PIP_CONFIG_FILE", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"}, "where pip's settings are, which --python passes to uv with those of PIP_INDEX_URL and the like"},
		{[]string{"NO_COLOR", "TERM"}, "whether --color auto gives tags a colour"},
		{[]string{"LC_ALL", "LC_CTYPE", "LANG"}, "whether gorun topo draws with Unicode"},
		{[]string{"CUDA_VISIBLE_DEVICES"}, "GPUs that programs may use; if it is set, --gpus chooses none on this machine"},
		{[]string{"GORUN"}, "for horovod.run in Python: the gorun to start, instead of the one of the package or on the PATH"},
	}},
	{"Hosts of a batch scheduler, unless -H or --hostfile names others", []variable{
		{[]string{"GORUN_HOSTFILE"}, "a hostfile"},
		{[]string{"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", "I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE"}, "a hostfile, as MPI libraries name it"},
		{[]string{"OMPI_MCA_orte_set_default_slots", "I_MPI_PERHOST"}, "slots of hosts without a number"},
		{[]string{"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_STEP_NODELIST", "SLURM_HET_SIZE"}, "Slurm; with _HET_GROUP_0 and so on for the parts of a heterogeneous job"},
		{[]string{"SLURM_CLUSTER_NAME"}, "shows an allocation of Slurm, in which srun starts the daemons"},
		{[]string{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}, "srun gorun: task 0 is the launcher, the others end at once"},
		{[]string{"SLURMD_NODENAME"}, "on hosts: their name, as Slurm knows them"},
		{[]string{"LSB_JOBID", "LSB_DJOB_HOSTFILE", "LSB_MCPU_HOSTS", "LSB_HOSTS"}, "LSF"},
		{[]string{"PBS_JOBID", "PBS_NODEFILE"}, "PBS and Torque"},
		{[]string{"JOB_ID", "PE_HOSTFILE"}, "Grid Engine"},
		{[]string{"K_MPI_JOB_ROLE"}, "launcher in the launcher of a Kubernetes MPIJob, whose workers may start later"},
		{[]string{"OMPI_MCA_plm_rsh_agent"}, "shows horovod.runner's helpers that they run in an MPIJob"},
	}},
	{"Programs of ranks", []variable{
		{[]string{"HOROVOD_SPARK_START_TIMEOUT"}, "for horovod.spark: seconds in which Spark must have room for all ranks"},
		{[]string{"HOROVOD_DYNAMIC_PROCESS_SETS"}, "1 lets programs add and remove process sets after init"},
		{[]string{"GOGC", "GOMAXPROCS", "GODEBUG"}, "the Go runtime of gorun and its daemons"},
	}},
	{"Resident daemons and tools", []variable{
		{[]string{"GORUN_WORKER", "GORUN_WORKER_KEY"}, "of the systemd unit, in /etc/gorun/worker.conf: options and key file of gorun worker"},
		{[]string{"GORUN_ALLOW_ROOT"}, "1 lets gorun worker stay root, as --allow-root does"},
		{[]string{"NOTIFY_SOCKET"}, "systemd's: gorun worker reports there that it is ready"},
		{[]string{"GOVC_URL", "GOVC_USERNAME", "GOVC_PASSWORD", "GOVC_INSECURE"}, "how gorun-vsphere reaches vCenter"},
	}},
	{"gorun's own: do not set these", []variable{
		{[]string{"GORUN_DETACHED", "GORUN_HOSTED"}, "show a launcher that it has no terminal, and that a daemon of a cluster runs it"},
		{[]string{"GORUN_ON_LOSS"}, "keep-batch or shrink-batch: what --on-loss sets, for samplers"},
		{[]string{"GORUN_VERBOSE"}, "1: the first rank of each host shows which frameworks it uses, and how they reach the engine; --verbose sets it"},
		{[]string{"GORUN_TIME_SCALE"}, "a factor for the limits of tests"},
		{[]string{"GORUN_BLIND"}, "1: nothing is counted or recorded, to measure what that costs"},
		{[]string{"_GORUN_CALL", "_GORUN_CALL_MAIN", "_GORUN_CALL_KEY"}, "the function of horovod.run"},
		{[]string{"_GORUN_SEATS", "_GORUN_STARTER", "_GORUN_PYTHON", "_GORUN_KEPT"}, "how the ranks of horovod.ray and horovod.spark find their processes and functions"},
		{[]string{"_HOROVOD_SECRET_KEY"}, "horovodrun's; not passed on"},
	}},
}

// userVariables are all variables that gorun reads, by use.
func userVariables(flags []cli.Flag) []variableGroup {
	stand := variableGroup{title: "Instead of flags, which win over them"}
	for _, f := range flagInfos(flags) {
		for _, name := range f.env {
			stand.list = append(stand.list, variable{[]string{name}, f.names[0]})
		}
	}
	knobbed := variableGroup{title: "horovodrun's, which its flags set for the ranks"}
	for _, k := range knobs {
		if k.env != "" {
			knobbed.list = append(knobbed.list, variable{[]string{k.env}, "--" + k.names[0] + ": " + k.meaning()})
		}
	}
	return append([]variableGroup{stand}, append(append([]variableGroup{}, otherVariables...), knobbed)...)
}

// writeVariables is gorun help environment.
func writeVariables(w io.Writer, flags []cli.Flag) {
	fmt.Fprint(w, "Variables that gorun reads. Those that ranks get are shown by gorun --dry-run.\n")
	for _, g := range userVariables(flags) {
		fmt.Fprintf(w, "\n%s:\n", g.title)
		for _, v := range g.list {
			flagInfo{names: v.names, usage: v.meaning}.write(w)
		}
	}
}
