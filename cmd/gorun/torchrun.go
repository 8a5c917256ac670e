package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"gorun/launcher/hosts"
	"gorun/topology"
	"gorun/topology/probe"
)

// torchrunTable binds the flags of torchrun.
func (o *jobFlags) torchrunTable() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "nnodes", Destination: &o.nnodes,
			Usage: "torchrun's number `N` of hosts; they are those of -H or --hostfile, or this machine", Hidden: true},
		&cli.StringFlag{Name: "nproc-per-node", Destination: &o.nprocPerNode, Aliases: []string{"nproc_per_node"},
			Usage: "torchrun's -ppn `N`; auto, gpu and cpu count what this machine has", Hidden: true},
		&cli.BoolFlag{Name: "standalone", Destination: &o.standalone,
			Usage: "torchrun's word for this machine alone, as without -H and --hostfile", Hidden: true},
		&cli.BoolFlag{Name: "module", Destination: &o.module, Aliases: []string{"m"},
			Usage: "run a module of Python's: -m NAME, as python3 -m NAME", Hidden: true},
		&cli.IntFlag{Name: "max-restarts", Destination: &o.maxRestarts, Aliases: []string{"max_restarts"}, Category: "elastic",
			Usage: "when a rank fails, start all of them again, up to `N` times", DefaultText: "0"},
	}
}

// checkNodes holds --nnodes against the hosts that there are: N, or N:N.
func checkNodes(o *jobFlags, have int) error {
	least, most, isRange := strings.Cut(o.nnodes, ":")
	if !isRange {
		most = least
	}
	lo, err := strconv.Atoi(least)
	hi, err2 := strconv.Atoi(most)
	switch {
	case !o.given(&o.nnodes):
	case errors.Join(err, err2) != nil || lo < 1 || hi < lo:
		return &usageError{fmt.Errorf("--nnodes %s: neither N nor MIN:MAX", o.nnodes), "-H host1,host2: their ranks are all started from here"}
	case lo < hi:
		return &usageError{fmt.Errorf("--nnodes %s: a range of hosts needs an elastic job", o.nnodes), "--min-np N, with -H or --host-discovery-script"}
	case lo != have:
		return &usageError{fmt.Errorf("--nnodes %s: the job has %s", o.nnodes, topology.Count(have, "host")), "-H host1,host2: their ranks are all started from here"}
	}
	return nil
}

// nprocPerNode reads torchrun's --nproc-per-node, which may count what this machine has, if no other is named.
func nprocPerNode(o *jobFlags) (int, error) {
	said := o.nprocPerNode
	if said != "auto" && said != "gpu" && said != "cpu" {
		n, err := strconv.Atoi(said)
		if err != nil {
			return 0, &usageError{fmt.Errorf("--nproc-per-node %s: neither a number nor auto, gpu or cpu", said), ""}
		}
		return n, nil
	}
	if given, err := hosts.Allocated(surroundings()); o.namesHosts() || o.cluster != "" || given != nil || err != nil {
		return 0, &usageError{fmt.Errorf("--nproc-per-node %s counts what this machine has, not what other hosts have", said), "-ppn N, or slots behind their names: -H host1:8,host2:8"}
	}
	gpus := 0
	if said != "cpu" {
		gpus = visibleGPUs()
	}
	switch {
	case gpus > 0:
		return gpus, nil
	case said == "gpu":
		return 0, &usageError{errors.New("--nproc-per-node gpu: this machine has no GPU"), "--nproc-per-node cpu, or a number"}
	}
	return runtime.NumCPU(), nil
}

// visibleGPUs is how many GPUs a program on this machine may use.
var visibleGPUs = sync.OnceValue(func() int {
	if list, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		return listedGPUs(list)
	}
	host, err := probe.Probe(context.Background(), "/")
	if err != nil {
		return 0
	}
	return len(host.GPUs)
})

// listedGPUs counts the devices of a CUDA_VISIBLE_DEVICES. CUDA stops at the first one that cannot be, such as -1.
func listedGPUs(list string) (n int) {
	for device := range strings.SplitSeq(list, ",") {
		if device = strings.TrimSpace(device); device == "" || device[0] == '-' {
			break
		}
		n++
	}
	return n
}
