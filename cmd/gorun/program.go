package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/launcher"
	"gorun/launcher/hosts"
	"gorun/launcher/shellwords"
	"gorun/rendezvous/wire"
)

// program is one of the programs that a job runs.
type program struct {
	launcher.Program
	hosts    []hosts.ListedHost // of its own; nil for the job's
	fromFile []string           // what --env-file sets
}

// programTable binds the flags for what ranks run.
func (o *jobFlags) programTable() []cli.Flag {
	return []cli.Flag{
		&cli.PathFlag{Name: "wdir", Destination: &o.dir, Aliases: []string{"wd"}, Usage: "working `DIRECTORY` of the ranks", DefaultText: "this one"},
		&cli.StringSliceFlag{Name: "x", Destination: &o.variables, Usage: "set a variable for the ranks: `NAME=VALUE`, or NAME or a pattern ('NCCL_*') for what is set here; may be given more than once"},
		&cli.PathFlag{Name: "env-file", Destination: &o.envFile, Usage: "set the variables that `FILE` has for the ranks: a line NAME=VALUE each, as in .env; -x wins"},
		&cli.BoolFlag{Name: "env-none", Destination: &o.envNone, Aliases: []string{"genvnone", "envnone"}, Usage: "pass on nothing of this environment but what -x names"},
		&cli.GenericFlag{Name: "genv", Value: &o.genv, Usage: "Hydra's -x, for all of several programs: `NAME VALUE`", Hidden: true},
		&cli.GenericFlag{Name: "env", Value: &o.env, Usage: "Hydra's -x: `NAME VALUE`", Hidden: true},
		&cli.StringFlag{Name: "genvlist", Destination: &o.genvList, Usage: "Hydra's -x for a `LIST` of names, for all of several programs", Hidden: true},
		&cli.StringFlag{Name: "envlist", Destination: &o.envList, Usage: "Hydra's -x for a `LIST` of names", Hidden: true},
		&cli.StringFlag{Name: "rank-wrapper", Destination: &o.wrapper, Usage: "run each rank by `COMMAND`, in which {rank}, {local_rank} and {gpu} are filled in: 'numactl -N {local_rank} --'"},
		&cli.StringFlag{Name: "gpus", Destination: &o.gpus, Usage: "set CUDA_VISIBLE_DEVICES by slot: auto for the GPUs (or MIG parts) of each host, or a `LIST` of indexes or UUIDs", DefaultText: "left to the program"},
		&cli.StringFlag{Name: "gpu-path", Destination: &o.GPUPath, Value: "host", EnvVars: []string{"GORUN_GPU_PATH"}, Usage: "what carries tensors that lie on GPUs, by `NAME`: host (through the memory of hosts), nccl, hierarchical (NCCL within hosts), ipc (memory of the GPU that ranks share), or auto (nccl where each rank has a GPU of its own and NCCL, ipc where ranks share GPUs, else host)"},
		&cli.BoolFlag{Name: "tf-config", Destination: &o.TF, Usage: "set TF_CONFIG, for tf.distribute"},
		&cli.StringFlag{Name: "jax-engine", Destination: &o.JAX, Usage: "what carries the collectives that JAX itself puts into programs of several processes, on CPUs, by `NAME`: gorun", DefaultText: "what the program chooses"},
		&cli.BoolFlag{Name: "pmi-port", Destination: &o.PMIPort, Usage: "let MPI programs find gorun by a port of their host (PMI_PORT): for sudo and containers, which close descriptors"},
		&cli.BoolFlag{Name: "strict", Destination: &o.strict, Usage: "end the job as soon as a library, such as Open MPI or Horovod, leaves a rank alone in its world; --strict=false only warns, also of hosts with different Pythons", DefaultText: "a job in which ranks were alone fails at its end"},
		&cli.BoolFlag{Name: "no-horovod-shim", Destination: &o.noShim, Usage: "let programs import the Horovod that is installed on the hosts, not gorun's drop-in"},
	}
}

// gpuPaths are the values of --gpu-path.
var gpuPaths = []string{"auto", "hierarchical", "host", "ipc", "nccl"}

// gpusOf reads --gpus.
func gpusOf(o *jobFlags) ([]string, error) {
	if !o.given(&o.gpus) {
		return nil, nil
	}
	list := strings.Split(o.gpus, ",")
	for _, id := range list {
		if id == "" || strings.ContainsAny(id, " \t") || id == "auto" && len(list) > 1 {
			return nil, &usageError{fmt.Errorf("--gpus %q: neither auto nor a list of GPUs", o.gpus), "--gpus auto, --gpus 0,1 or --gpus GPU-…,MIG-…"}
		}
	}
	return list, nil
}

// ranksOf is how many ranks several programs have together, 0 for a single one.
func ranksOf(programs []program) int {
	n := 0
	if len(programs) > 1 {
		for _, p := range programs {
			n += p.Ranks
		}
	}
	return n
}

// haveHosts reports whether some programs have hosts of their own.
func haveHosts(programs []program) bool {
	return slices.ContainsFunc(programs, func(p program) bool { return p.hosts != nil })
}

// readWrapper splits --rank-wrapper into words as a shell would.
func readWrapper(o *jobFlags) ([]string, error) {
	words, err := shellwords.Split(o.wrapper)
	if err = cmp.Or(err, wire.CheckTemplate(o.wrapper, "{rank}", "{local_rank}", "{gpu}")); err != nil {
		return nil, &usageError{fmt.Errorf("--rank-wrapper: %w", err), "--rank-wrapper 'numactl -N {local_rank} --'"}
	}
	return words, nil
}

// ownBinary is a program of ranks that is the daemon's own binary, wherever it is on the host.
const ownBinary = "/proc/self/exe"

// programName describes in a few words what a job runs. Arguments may be secret, so it shows only the first that is not
// a flag: a script's name is of more use than python3.
func programName(programs []program) string {
	name := filepath.Base(programs[0].Argv[0])
	if programs[0].Argv[0] == ownBinary {
		name = "gorun"
	}
	for _, arg := range programs[0].Argv[1:] {
		if !strings.HasPrefix(arg, "-") {
			if !strings.ContainsAny(arg, "\n;=") { // a script in an argument
				name += " " + filepath.Base(arg)
			}
			break
		}
	}
	return name
}

// ifAlone returns what happens to a job whose ranks are alone.
func ifAlone(o *jobFlags) wire.IfAlone {
	switch {
	case o.strict:
		return wire.AloneEnds
	case o.given(&o.strict):
		return wire.AloneWarns
	}
	return wire.AloneFails
}
