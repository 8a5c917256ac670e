package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// peers have gorun's spelling for flags of other launchers that gorun lacks, as the manuals of those list them: the page
// of docs/migrate, and for names that mean the same what to do instead.
var peers = []struct {
	page  string
	flags map[string]string
}{
	// Open MPI's mpirun
	{"mpirun", map[string]string{
		"display display-allocation display-devel-allocation display-devel-map display-diffable-map do-not-launch print-rank-map": "--dry-run shows hosts, slots and where ranks go",
		"display-topo":                             "gorun topo",
		"npersocket":                               "-ppn with the ranks of a host; --bind-to socket gives each the cores of one",
		"rankfile rf order-nodes":                  "-H or --hostfile with the hosts in the order of the ranks",
		"cpus-per-proc cpus-per-rank":              "--map-by slot:PE=N",
		"cpu-set cpu-list":                         "--bind-to core; --rank-wrapper 'taskset -c LIST' names the CPUs",
		"bind-to-core bind-to-socket bind-to-none": "--bind-to core, socket or none",
		"bycore bysocket":                          "leave it out: within a host ranks are numbered in order",
		"prefix path":                              "nothing has to be installed on the hosts; -x PATH=... changes where programs are found",
		"output-directory":                         "--output-filename DIR",
		"preload-binary preload-files":             "gorun copies no programs: put it on the hosts at the same path",
		"report-pid":                               "--json reports each rank that starts",
		"output":                                   "--timestamp-output, --merge-stderr or --output-filename DIR; lines are tagged anyway",
		"default-hostfile":                         "--hostfile FILE",
		"use-hwthread-cpus":                        "--bind-to hwthread",
		"am tune":                                  "leave it out: parameters of Open MPI change nothing here, except those of -mca that choose NICs",
		// Hydra's mpiexec
		"info":                     "gorun version",
		"localhost":                "-H NAME:SLOTS",
		"nolocal skip-launch-node": "leave this machine out of -H",
		"membind":                  "--bind-to numa binds memory too",
		"gpus-per-proc":            "--gpus",
		"print-all-exitcodes":      "--json reports how each rank ended",
		"disable-auto-cleanup":     "--min-np goes on without a failed rank; a job of fixed size ends",
	}},
	// Slurm's srun
	{"slurm-kubernetes", map[string]string{
		"ntasks":                               "-np N",
		"nodes nodelist nodefile w F relative": "leave it out: gorun takes the hosts of the allocation, or those of -H",
		"exclude":                              "leave those hosts out of -H",
		"cpus-per-task":                        "--map-by slot:PE=N; the allocation's is taken by itself",
		"ntasks-per-socket ntasks-per-core":    "-ppn with the ranks of a host",
		"cpu-bind mem-bind":                    "--bind-to core, socket, numa or none; numa binds memory too",
		"distribution":                         "--map-by slot or node",
		"gres gpus-per-task gpus-per-node gpus-per-socket gpu-bind G": "--gpus auto",
		"export":     "-x NAME=VALUE; --env-none passes nothing else on",
		"chdir D":    "--wdir DIR",
		"error o e":  "--output-filename DIR",
		"input":      "--stdin",
		"multi-prog": "--configfile FILE, or programs with : between them",
		"label unbuffered u kill-on-bad-exit K wait W": "leave it out: output is tagged and shown at once, and the first rank that fails ends the job",
		"time":         "--timeout SECONDS",
		"overcommit O": "--oversubscribe",
		"partition account A qos exclusive job-name J mem mem-per-cpu constraint reservation overlap immediate I": "give it to salloc or sbatch, in whose allocation gorun runs",
	}},
	{"torchrun", map[string]string{
		"node-rank":                            "run gorun once, on one machine: it starts the ranks of all hosts in -H",
		"local-addr":                           "--network-interfaces chooses the networks",
		"log-dir tee redirects t r logs-specs": "--output-filename DIR",
		"local-ranks-filter":                   "--only-ranks",
		"monitor-interval":                     "leave it out: gorun notices at once when a rank ends",
		"run-path":                             "gorun ... python SCRIPT",
		"role":                                 "leave it out: gorun has one role, all ranks",
		"start-method":                         "leave it out: ranks are programs of their own",
		"signals-to-handle":                    "leave it out: gorun passes on INT and TERM, and ends the ranks whatever ends it",
		"numa-binding":                         "--bind-to numa",
		"virtual-local-rank":                   "--gpus auto, which shows each rank its own GPU as number 0",
		"duplicate-stdout-filters duplicate-stderr-filters": "--output-filename DIR, and grep",
		"event-log-handler":        "--json reports what happens to ranks and hosts",
		"log-line-prefix-template": "--tag",
	}},
	// Former flags of gorun.
	{"", map[string]string{
		"html":     "--svg FILE; browsers show it",
		"otlp":     "--metrics :9400, which a collector of OpenTelemetry reads",
		"simulate": "-v shows what messages cost, and which algorithm is used from which size on",
		"vs":       "python3 contrib/bench/peers.py, in gorun's sources, measures the peers too",
	}},
}

// joinedNumber is a flag with its number, in one word.
var joinedNumber = regexp.MustCompile(`^([A-Za-z-]+)(\d+)$`)

// peerHint is what to do instead of giving a flag of another launcher, or one of gorun's as other launchers take it; ""
// if it is not known.
func peerHint(flags []cli.Flag, flag string) string {
	name, _, _ := strings.Cut(strings.ReplaceAll(flag, "_", "-"), "=")
	for _, p := range peers {
		for names, meant := range p.flags {
			switch {
			case !slices.Contains(strings.Fields(names), name):
			case strings.HasPrefix(meant, "-"):
				return "instead of it: " + meant
			default:
				return meant
			}
		}
	}
	if m := joinedNumber.FindStringSubmatch(name); m != nil && findFlag(flags, m[1]) != nil {
		return "a value is a word of its own: -" + m[1] + " " + m[2]
	}
	return ""
}
