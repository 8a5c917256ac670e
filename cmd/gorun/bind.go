package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/topology"
)

// bindTable binds the flags for the CPUs of ranks.
func (o *jobFlags) bindTable() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "bind-to", Destination: &o.bindTo,
			Usage: "bind each rank to `WHAT`: none, hwthread, core, core:N, numa, socket; beside its GPU, or spread from the NIC's NUMA node on", DefaultText: "none, or core with --map-by …:PE=N"},
		&cli.BoolFlag{Name: "report-bindings", Destination: &o.ReportBindings,
			Usage: "show which CPUs the ranks, and the engine, run on"},
	}
}

// readBind reads --bind-to and the PE of --map-by.
func readBind(o *jobFlags) (topology.Bind, error) {
	flag, to := "--bind-to", o.bindTo
	if args := readBindingArgs(o); to == "" && args.to != "" {
		flag, to = "--binding-args", args.to
	}
	bind, err := topology.ParseBind(to)
	if err != nil {
		return bind, &usageError{fmt.Errorf("%s: %w", flag, err), "--bind-to numa"}
	}
	policy, err := policyOf(o)
	if err != nil {
		return bind, err
	}
	if policy.Cores > 0 {
		bind.To, bind.Each = cmp.Or(bind.To, topology.BindCore), policy.Cores
	}
	exclusive := bind.To == topology.BindCore || bind.To == topology.BindThread
	switch {
	case policy.Cores > 0 && !exclusive:
		return bind, &usageError{fmt.Errorf("--map-by %s and --bind-to %s exclude each other", o.mapBy, bind.To), ""}
	case exclusive && o.cluster != "": // each would begin with the same cores
		return bind, &usageError{fmt.Errorf("--bind-to %s: jobs of a --cluster share hosts and do not know of each other's cores", bind.To), "--bind-to numa"}
	}
	return bind, nil
}

// bindingArgs holds the options of mpirun in horovodrun's --binding-args.
type bindingArgs struct {
	to     string
	report bool
	idle   []string // words without a meaning here
}

// readBindingArgs reads the options that gorun has flags for, with one dash or two. gorun's own flags win.
func readBindingArgs(o *jobFlags) (b bindingArgs) {
	words := strings.Fields(strings.ReplaceAll(*o.texts["binding-args"], "=", " "))
	for i := 0; i < len(words); i++ {
		switch name := strings.TrimLeft(words[i], "-"); {
		case name == "bind-to" && i+1 < len(words):
			i++
			b.to = words[i]
		case name == "report-bindings":
			b.report = true
		default:
			b.idle = append(b.idle, words[i])
		}
	}
	return b
}
