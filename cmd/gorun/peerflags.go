package main

import "strings"

// launcherFlags has gorun's spelling for flags of another launcher that gorun lacks, as the launcher's manual lists
// them.
type launcherFlags struct {
	page  string // of docs/migrate
	flags map[string]string
}

var peers = []launcherFlags{
	// Open MPI's mpirun
	{"mpirun", map[string]string{
		"display-allocation": "--dry-run shows hosts and slots",
		"display":            "--dry-run shows hosts, slots and where ranks go",
		"npersocket":         "-ppn with the ranks of a host; --bind-to socket gives each the cores of one",
		"rankfile":           "-H or --hostfile with the hosts in the order of the ranks",
		"rf":                 "-H or --hostfile with the hosts in the order of the ranks",
		"cpus-per-proc":      "--map-by slot:PE=N",
		"cpus-per-rank":      "--map-by slot:PE=N",
		"prefix":             "nothing has to be installed on the hosts; -x PATH=... changes where programs are found",
		"output-directory":   "--output-filename DIR",
		"preload-binary":     "gorun copies no programs: put it on the hosts at the same path",
		"report-pid":         "--json reports each rank that starts",
		"output":             "--timestamp-output, --merge-stderr or --output-filename DIR; lines are tagged anyway",
		"default-hostfile":   "--hostfile FILE",
		"use-hwthread-cpus":  "--bind-to hwthread",
	}},
	// Hydra's mpiexec
	{"mpirun", map[string]string{
		"info":                "gorun version",
		"localhost":           "-H NAME:SLOTS",
		"nolocal":             "leave this machine out of -H",
		"membind":             "--bind-to numa binds memory too",
		"gpus-per-proc":       "--gpus",
		"print-rank-map":      "--dry-run shows where ranks go",
		"print-all-exitcodes": "--json reports how each rank ended",
	}},
	{"torchrun", map[string]string{
		"node-rank":                "run gorun once, on one machine: it starts the ranks of all hosts in -H",
		"local-addr":               "--network-interfaces chooses the networks",
		"log-dir":                  "--output-filename DIR",
		"tee":                      "--output-filename DIR",
		"redirects":                "--output-filename DIR",
		"local-ranks-filter":       "--only-ranks",
		"monitor-interval":         "leave it out: gorun notices at once when a rank ends",
		"t":                        "--output-filename DIR",
		"r":                        "--output-filename DIR",
		"run-path":                 "gorun ... python SCRIPT",
		"role":                     "leave it out: gorun has one role, all ranks",
		"start-method":             "leave it out: ranks are programs of their own",
		"signals-to-handle":        "leave it out: gorun passes on INT and TERM, and ends the ranks whatever ends it",
		"numa-binding":             "--bind-to numa",
		"virtual-local-rank":       "--gpus auto, which shows each rank its own GPU as number 0",
		"duplicate-stdout-filters": "--output-filename DIR, and grep",
		"duplicate-stderr-filters": "--output-filename DIR, and grep",
		"event-log-handler":        "--json reports what happens to ranks and hosts",
		"logs-specs":               "--output-filename DIR",
	}},
	// A former flag of gorun bench.
	{"", map[string]string{
		"vs": "python3 contrib/bench/peers.py, in gorun's sources, measures the peers too",
	}},
}

// peerHint is what to do instead of giving a flag of another launcher, "" if it is not known.
func peerHint(flag string) string {
	name, _, _ := strings.Cut(strings.ReplaceAll(flag, "_", "-"), "=")
	dashes := "--"
	if len(name) == 1 {
		dashes = "-"
	}
	for _, p := range peers {
		if meant := p.flags[name]; strings.HasPrefix(meant, "-") {
			return "instead of " + dashes + flag + " here: " + meant
		} else if meant != "" {
			return meant
		}
	}
	return ""
}
