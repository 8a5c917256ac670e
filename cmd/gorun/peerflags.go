package main

import "strings"

// peerFlags gives gorun's spelling for flags of other launchers that gorun lacks: Open MPI's
// mpirun, Hydra's mpiexec and torchrun, as their manuals list them.
var peerFlags = map[string]string{
	// Open MPI
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
	"report-pid":         "--json tells of each rank that starts",
	// Hydra
	"info":                "gorun version",
	"localhost":           "-H NAME:SLOTS",
	"nolocal":             "leave this machine out of -H",
	"membind":             "--bind-to numa binds memory too",
	"gpus-per-proc":       "--gpus",
	"print-all-exitcodes": "--json tells how each rank ended",
	// torchrun
	"node-rank":          "run gorun once, on one machine: it starts the ranks of all hosts in -H",
	"local-addr":         "--network-interfaces chooses the networks",
	"run-path":           "gorun ... python SCRIPT",
	"log-dir":            "--output-filename DIR",
	"tee":                "--output-filename DIR",
	"redirects":          "--output-filename DIR",
	"local-ranks-filter": "--only-ranks",
	"start-method":       "ranks are programs of their own",
	"role":               "gorun has one role: all ranks",
	// gorun bench, once
	"vs":               "python3 contrib/bench/peers.py, in gorun's sources, measures the peers too",
	"monitor-interval": "not needed: gorun hears of it when a rank ends",
}

// peerHint is what to write instead of a flag of another launcher, "" if it is not known.
func peerHint(flag string) string {
	name, _, _ := strings.Cut(strings.ReplaceAll(flag, "_", "-"), "=")
	return peerFlags[name]
}
