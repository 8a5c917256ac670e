package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"gorun/topology"
	"gorun/topology/facts"
)

// ringFlags say in which order data goes round the hosts.
func ringFlags() []cli.Flag {
	return []cli.Flag{
		&cli.PathFlag{Name: "topology", Usage: "read what machines do not tell from a YAML `FILE`: ESXi hosts, racks, NUMA nodes, measured edges"},
		&cli.StringFlag{Name: "ring-order", Usage: "order of the hosts for data, by `WHAT`: host (the list's), topology (labels and NICs), measured", DefaultText: "measured, where the topology file has it"},
	}
}

// ringPlan is what the flags say.
type ringPlan struct {
	by   topology.By
	file string // its name
	text []byte // nil for none
	*facts.File
}

// readRing checks --ring-order and --topology before any host is asked.
func readRing(c *cli.Context) (ringPlan, error) {
	by, err := topology.ParseBy(c.String("ring-order"))
	if err != nil {
		return ringPlan{}, &usageError{fmt.Errorf("--ring-order: %w", err), "--ring-order topology"}
	}
	p := ringPlan{by: by, file: c.Path("topology"), File: &facts.File{}}
	if p.file == "" {
		if c.IsSet("ring-order") && by == topology.ByMeasured {
			return p, &usageError{errors.New("--ring-order measured: there is no measurement"), "--topology FILE, with edges in the file"}
		}
		return p, nil
	}
	f, err := os.Open(p.file)
	if err != nil {
		return p, &usageError{fmt.Errorf("read topology file: %w", err), ""}
	}
	defer f.Close()
	if p.text, err = io.ReadAll(io.LimitReader(f, facts.MaxFile+1)); err != nil {
		return p, &usageError{fmt.Errorf("read topology file: %w", err), ""}
	}
	if p.File, err = facts.Parse(p.text); err != nil {
		return p, &usageError{fmt.Errorf("%s: %w", p.file, err), "README.md describes the file"}
	}
	return p, nil
}

// override applies the file to hosts that answered.
func (p ringPlan) override(hosts []topology.Host) error {
	for i := range hosts {
		if err := p.Override(&hosts[i]); err != nil {
			return &usageError{fmt.Errorf("%s: %w", p.file, err), "gorun topo -H " + hosts[i].Name + " shows what it has"}
		}
	}
	return nil
}
