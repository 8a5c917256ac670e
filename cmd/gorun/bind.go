package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/topology"
)

// bindFlags say which CPUs ranks run on.
func bindFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "bind-to", Usage: "bind each rank to `WHAT`: none, hwthread, core, core:N, numa, socket; beside its GPU, or spread from the NIC's NUMA node on", DefaultText: "none, or core with --map-by …:PE=N"},
		&cli.BoolFlag{Name: "report-bindings", Usage: "show which CPUs the ranks, and the engine, run on"},
	}
}

// readBind reads --bind-to and the PE of --map-by.
func readBind(c *cli.Context) (topology.Bind, error) {
	flag, to := "--bind-to", c.String("bind-to")
	if args := readBindingArgs(c); to == "" && args.to != "" {
		flag, to = "--binding-args", args.to
	}
	bind, err := topology.ParseBind(to)
	if err != nil {
		return bind, &usageError{fmt.Errorf("%s: %w", flag, err), "--bind-to numa"}
	}
	policy, err := policyOf(c)
	if err != nil {
		return bind, err
	}
	if policy.Cores > 0 {
		bind.To, bind.Each = cmp.Or(bind.To, topology.BindCore), policy.Cores
	}
	exclusive := bind.To == topology.BindCore || bind.To == topology.BindThread
	switch {
	case policy.Cores > 0 && !exclusive:
		return bind, &usageError{fmt.Errorf("--map-by %s and --bind-to %s exclude each other", c.String("map-by"), bind.To), ""}
	case exclusive && c.IsSet("cluster"): // each would begin with the same cores
		return bind, &usageError{fmt.Errorf("--bind-to %s: jobs of a --cluster share hosts and do not know of each other's cores", bind.To), "--bind-to numa"}
	}
	return bind, nil
}

// bindingArgs is what horovodrun's --binding-args says to mpirun.
type bindingArgs struct {
	to     string
	report bool
	idle   []string // what means nothing here
}

// readBindingArgs understands what gorun has flags for, with one dash or two. Its own flags win.
func readBindingArgs(c *cli.Context) (b bindingArgs) {
	words := strings.Fields(strings.ReplaceAll(c.String("binding-args"), "=", " "))
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
