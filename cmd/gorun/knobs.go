package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// knob is a flag of horovodrun that reaches the ranks as an environment variable. Stock Horovod reads it there, and so
// does each part of gorun that it concerns. Only knobs that are given are exported. Flags of other launchers that gorun
// does without are knobs too.
type knob struct {
	of      string // the launcher, if it is not horovodrun
	names   []string
	opposed []string // the flags that turn a switch off
	kind    kind
	env     string // "" if there is none
	means   string // what the variable says, if that is not what the flag says
	inverse bool   // the variable is 1 when the switch is off
	file    string // section.key in a --config-file
	needs   string // exported only beside this flag
	serves  string // changes something only beside this flag
	usage   string
	idle    string // why it changes nothing here, "" if it does
}

// kind determines which values a knob takes.
type kind int

const (
	number   kind = iota // an integer, 0 or more
	decimal              // 0 or more
	fraction             // 0 to 1
	text
	toggle
	megabytes // an integer, exported in bytes
	level
)

const (
	noCycle = "there is no cycle, cache or tree to tune"
	noTuner = "nothing is left to tune by trial"
	noMPI   = "there is no MPI underneath"
	notGloo = "gorun's engine takes the place of Gloo and NCCL"
	noCache = "nothing is cached"
	noStore = "daemons find each other, and ranks learn where rank 0 is"
)

// knobs is the table of horovodrun's engine flags, in the order of its help.
var knobs = []knob{
	{names: []string{"fusion-threshold-mb"}, kind: megabytes, env: "HOROVOD_FUSION_THRESHOLD", means: "size of gradient buckets in bytes", file: "params.fusion_threshold_mb",
		usage: "size of gradient buckets in `MB`"},
	{names: []string{"cycle-time-ms"}, kind: decimal, env: "HOROVOD_CYCLE_TIME", file: "params.cycle_time_ms",
		usage: "`MS` between two looks for work", idle: noCycle},
	{names: []string{"cache-capacity"}, kind: number, env: "HOROVOD_CACHE_CAPACITY", file: "params.cache_capacity",
		usage: "`N` tensors whose negotiation is remembered", idle: noCycle},
	{names: []string{"hierarchical-allreduce"}, opposed: []string{"no-hierarchical-allreduce"}, kind: toggle, env: "HOROVOD_HIERARCHICAL_ALLREDUCE", file: "params.hierarchical_allreduce",
		usage: "reduce within hosts first", idle: "it always does"},
	{names: []string{"hierarchical-allgather"}, opposed: []string{"no-hierarchical-allgather"}, kind: toggle, env: "HOROVOD_HIERARCHICAL_ALLGATHER", file: "params.hierarchical_allgather",
		usage: "gather within hosts first", idle: "it always does"},
	{names: []string{"torus-allreduce"}, opposed: []string{"no-torus-allreduce"}, kind: toggle, env: "HOROVOD_TORUS_ALLREDUCE", file: "params.torus_allreduce",
		usage: "reduce along a torus", idle: noCycle},

	{names: []string{"autotune"}, opposed: []string{"no-autotune"}, kind: toggle, env: "HOROVOD_AUTOTUNE", file: "autotune.enabled", serves: "autotune-log-file",
		usage: "log the size of buckets and the speed reached; nothing is searched for"},
	{names: []string{"autotune-log-file"}, kind: text, env: "HOROVOD_AUTOTUNE_LOG", file: "autotune.log_file", needs: "autotune",
		usage: "write the size of buckets and the speed reached to `FILE`"},
	{names: []string{"autotune-warmup-samples"}, kind: number, env: "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", file: "autotune.warmup_samples", needs: "autotune", serves: "autotune-log-file",
		usage: "leave out `N` samples"},
	{names: []string{"autotune-steps-per-sample"}, kind: number, env: "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", file: "autotune.steps_per_sample", needs: "autotune", serves: "autotune-log-file",
		usage: "`N` steps in a sample"},
	{names: []string{"autotune-bayes-opt-max-samples"}, kind: number, env: "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", file: "autotune.bayes_opt_max_samples", needs: "autotune",
		usage: "at most `N` samples", idle: noTuner},
	{names: []string{"autotune-gaussian-process-noise"}, kind: fraction, env: "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", file: "autotune.gaussian_process_noise", needs: "autotune",
		usage: "noise `F` from 0 to 1", idle: noTuner},

	{names: []string{"timeline-filename"}, kind: text, env: "HOROVOD_TIMELINE", file: "timeline.filename",
		usage: "write a timeline of operations to `FILE`"},
	{names: []string{"timeline-mark-cycles"}, opposed: []string{"no-timeline-mark-cycles"}, kind: toggle, env: "HOROVOD_TIMELINE_MARK_CYCLES", file: "timeline.mark_cycles", needs: "timeline-filename",
		usage: "mark in the timeline when each operation begins"},

	{names: []string{"stall-check"}, opposed: []string{"no-stall-check"}, kind: toggle, env: "HOROVOD_STALL_CHECK_DISABLE", means: "1 stops the warnings of ranks that others wait for", inverse: true, file: "stall_check.enabled",
		usage: "warn of ranks that others wait for"},
	{names: []string{"stall-check-warning-time-seconds"}, kind: number, env: "HOROVOD_STALL_CHECK_TIME_SECONDS", file: "stall_check.warning_time_seconds",
		usage: "warn after `S` seconds"},
	{names: []string{"stall-check-shutdown-time-seconds"}, kind: number, env: "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", file: "stall_check.shutdown_time_seconds",
		usage: "end the job after `S` seconds, 0 for never"},

	{names: []string{"mpi-threads-disable"}, opposed: []string{"no-mpi-threads-disable"}, kind: toggle, env: "HOROVOD_MPI_THREADS_DISABLE", file: "library_options.mpi_threads_disable",
		usage: "use MPI from one thread", idle: noMPI},
	{names: []string{"mpi-args"}, kind: text, usage: "`ARGS` for mpirun", idle: noMPI},
	{names: []string{"tcp"}, kind: toggle, env: "NCCL_IB_DISABLE", usage: "use TCP only: no InfiniBand for NCCL either"},
	{names: []string{"binding-args"}, kind: text,
		usage: "mpirun's `ARGS` for the binding of processes: -bind-to and -report-bindings are what gorun's flags are"},
	{names: []string{"num-nccl-streams"}, kind: number, env: "HOROVOD_NUM_NCCL_STREAMS", file: "library_options.num_nccl_streams",
		usage: "`N` streams for NCCL", idle: notGloo},
	{names: []string{"thread-affinity"}, kind: number, env: "HOROVOD_THREAD_AFFINITY", file: "library_options.thread_affinity",
		usage: "`CPU` of the engine's thread", idle: "the engine is a process of its own"},
	{names: []string{"gloo-timeout-seconds"}, kind: number, env: "HOROVOD_GLOO_TIMEOUT_SECONDS", file: "library_options.gloo_timeout_seconds",
		usage: "`S` until Gloo gives up", idle: notGloo},

	{names: []string{"log-level"}, kind: level, env: "HOROVOD_LOG_LEVEL", file: "logging.level",
		usage: "`LEVEL` of the engine's log: TRACE, DEBUG, INFO, WARNING, ERROR, FATAL", idle: "gorun -v reports what happens"},
	{names: []string{"log-with-timestamp", "no-log-hide-timestamp"}, opposed: []string{"log-without-timestamp", "log-hide-timestamp"}, kind: toggle, env: "HOROVOD_LOG_HIDE_TIME", means: "1 leaves the time out of the engine's log", inverse: true, file: "logging.with_timestamp",
		usage: "put the time into the engine's log", idle: "gorun -v reports what happens"},

	{names: []string{"disable-cache"}, kind: toggle, usage: "do not use what an earlier run found out", idle: noCache},
	{names: []string{"gloo"}, kind: toggle, file: "controller.gloo", usage: "use the Gloo controller", idle: notGloo},
	{names: []string{"mpi"}, kind: toggle, file: "controller.mpi", usage: "use the MPI controller", idle: noMPI},
	{names: []string{"jsrun"}, kind: toggle, usage: "start with LSF's jsrun", idle: noMPI},

	{of: "mpirun", names: []string{"allow-run-as-root"}, kind: toggle, usage: "mpirun's; always allowed"},
	{of: "mpirun", names: []string{"tag-output", "l", "prepend-rank"}, kind: toggle, usage: "put [rank]<stdout>: before each line, as always"},
	{of: "mpirun", names: []string{"rmk"}, kind: text, usage: "Hydra's `KIND` of allocation, which gorun finds by itself"},
	{of: "mpirun", names: []string{"report-state-on-timeout"}, kind: toggle, usage: "tell what ranks wait for when --timeout ends the job, as always"},
	{of: "mpirun", names: []string{"usize"}, kind: text, usage: "Hydra's `SIZE` of the universe for MPI_Comm_spawn", idle: "MPI_Comm_spawn is refused"},
	{of: "mpirun", names: []string{"quiet", "q"}, kind: toggle, usage: "mpirun's"},
	{of: "mpirun", names: []string{"genvall", "envall"}, kind: toggle, usage: "pass on this environment, as always"},
	{of: "torchrun", names: []string{"no-python", "no_python"}, kind: toggle, usage: "torchrun's; programs are run as they are, always"},
	{of: "torchrun", names: []string{"use-env", "use_env"}, kind: toggle, usage: "of python3 -m torch.distributed.launch; ranks read LOCAL_RANK from their environment, always"},
	{of: "torchrun", names: []string{"rdzv-id", "rdzv_id"}, kind: text, usage: "torchrun's `ID` of a job", idle: noStore},
	{of: "torchrun", names: []string{"rdzv-backend", "rdzv_backend"}, kind: text, usage: "torchrun's `NAME` of a store", idle: noStore},
	{of: "torchrun", names: []string{"rdzv-endpoint", "rdzv_endpoint"}, kind: text, usage: "torchrun's `HOST:PORT` of a store", idle: noStore},
	{of: "torchrun", names: []string{"rdzv-conf", "rdzv_conf"}, kind: text, usage: "torchrun's `OPTIONS` of a store", idle: noStore},
	{of: "torchrun", names: []string{"master-addr", "master_addr"}, kind: text, usage: "torchrun's `HOST` of rank 0", idle: noStore},
	{of: "torchrun", names: []string{"master-port", "master_port"}, kind: text, usage: "torchrun's `PORT` of rank 0", idle: noStore},
}

// knobTable binds the flags of knobs. They are not in the short help: their place is their launcher's.
func (o *jobFlags) knobTable() []cli.Flag {
	o.texts, o.switches = map[string]*string{}, map[string]*bool{}
	var out []cli.Flag
	add := func(usage, of string, names ...string) {
		o.switches[names[0]] = new(bool)
		out = append(out, &cli.BoolFlag{Name: names[0], Aliases: names[1:], Destination: o.switches[names[0]], Usage: usage, Category: of, Hidden: true})
	}
	for _, k := range knobs {
		name := k.names[0]
		switch {
		case k.kind != toggle:
			o.texts[name] = new(string)
			out = append(out, &cli.StringFlag{Name: name, Aliases: k.names[1:], Destination: o.texts[name], Usage: k.help(), Category: k.of, Hidden: true})
		default:
			add(k.help(), k.of, k.names...)
			for _, opposed := range k.opposed {
				add("not --"+name, k.of, opposed)
			}
		}
	}
	return out
}

// help is the usage of the flag, with what it takes to have an effect.
func (k knob) help() string { return k.conditional(k.usage) }

// meaning is what the variable says, with what it takes to have an effect.
func (k knob) meaning() string {
	return k.conditional(cmp.Or(k.means, strings.ReplaceAll(k.usage, "`", "")))
}

// conditional adds to a text what the knob needs to have an effect.
func (k knob) conditional(text string) string {
	switch {
	case k.idle != "" && k.stock():
		return text + "; accepted, for stock Horovod (--no-horovod-shim) only: " + k.idle
	case k.idle != "":
		return text + "; accepted, without effect here: " + k.idle
	case k.serves != "":
		return text + "; only beside --" + k.serves
	case k.needs != "":
		return text + "; only beside --" + k.needs
	}
	return text
}

// horovodNames are the long names of horovodrun's flags.
func horovodNames() []string {
	names := []string{"version", "num-proc", "check-build", "start-timeout", "network-interfaces", "network-interface", "output-filename", "verbose",
		"config-file", "ssh-port", "ssh-identity-file", "hosts", "hostfile", "host-discovery-script", "min-np", "min-num-proc", "max-np", "max-num-proc",
		"slots-per-host", "elastic-timeout", "reset-limit", "blacklist-cooldown-range", "prefix-output-with-timestamp"}
	for _, k := range knobs {
		if k.of == "" {
			names = slices.Concat(names, k.names, k.opposed)
		}
	}
	return names
}

// given returns the value of k on the command line, "true" or "false" for a switch.
func (k knob) given(o *jobFlags) (value string, ok bool, err error) {
	var said []string
	for i, name := range slices.Concat(k.names, k.opposed) {
		switch {
		case k.kind == toggle && o.given(o.switches[name]):
			value = strconv.FormatBool(*o.switches[name] == (i < len(k.names)))
		case k.kind != toggle && o.given(o.texts[name]):
			value = *o.texts[name]
		default:
			continue
		}
		if len(said) > 0 {
			return "", false, &usageError{exclusive(said[0], name), ""}
		}
		said = append(said, name)
	}
	if len(said) == 0 {
		return "", false, nil
	}
	if problem := k.check(value); problem != "" {
		return "", false, &usageError{fmt.Errorf("--%s %s: %s", said[0], value, problem), ""}
	}
	return value, true, nil
}

// check describes what is wrong with a value, "" if nothing is.
func (k knob) check(value string) string {
	switch k.kind {
	case number, megabytes:
		if n, err := strconv.ParseInt(value, 10, 40); err != nil {
			return "not a number"
		} else if n < 0 {
			return "must be >= 0"
		}
	case decimal, fraction:
		switch f, err := strconv.ParseFloat(value, 64); {
		case err != nil || f != f:
			return "not a number"
		case k.kind == decimal && f < 0:
			return "must be >= 0"
		case k.kind == fraction && (f < 0 || f > 1):
			return "must be in [0, 1]"
		}
	case level:
		if !slices.Contains([]string{"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"}, value) {
			return "none of TRACE, DEBUG, INFO, WARNING, ERROR, FATAL"
		}
	case toggle:
		if _, err := strconv.ParseBool(value); err != nil {
			return "neither true nor false"
		}
	case text:
		if strings.ContainsRune(value, 0) {
			return "holds a zero byte"
		}
	}
	return ""
}

// variable returns the assignment that carries value, "" if there is none.
func (k knob) variable(value string) string {
	switch {
	case k.env == "":
		return ""
	case k.kind == megabytes:
		n, _ := strconv.ParseInt(value, 10, 40) // checked
		value = strconv.FormatInt(n<<20, 10)
	case k.kind == toggle:
		on, _ := strconv.ParseBool(value) // checked
		value = "0"
		if on != k.inverse {
			value = "1"
		}
	}
	return k.env + "=" + value
}

// stock reports whether stock Horovod obeys a knob. Ranks use it with --no-horovod-shim, over Gloo.
func (k knob) stock() bool { return k.of == "" && k.idle != noMPI && k.idle != noCache }

// without explains why a knob that is set has no effect, "" if it has one. A switch that is off needs no other flag.
func (k knob) without(values map[string]string, stock bool) string {
	stock = stock && k.stock()
	switch off := k.kind == toggle && values[k.names[0]] == "false"; {
	case k.idle != "" && !stock:
		return k.idle
	case !off && !beside(values, k.needs):
		return "only beside --" + k.needs
	case !off && !beside(values, k.serves) && !stock:
		return "only beside --" + k.serves
	}
	return ""
}

// beside reports whether a flag is set and, if it is a switch, on.
func beside(values map[string]string, name string) bool {
	owner := values[name]
	return name == "" || owner != "" && owner != "false"
}
