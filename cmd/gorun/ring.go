package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/topology"
	"gorun/topology/facts"
)

// ringTable binds the flags for the order of hosts.
func (o *jobFlags) ringTable() []cli.Flag {
	return []cli.Flag{
		&cli.PathFlag{Name: "topology", Destination: &o.topologyFile,
			Usage: "read from a YAML `FILE` what machines do not report: ESXi hosts, racks, NUMA nodes, measured edges"},
		&cli.PathFlag{Name: "save-topology", Destination: &o.saveTopology,
			Usage: "at the end, write what the job measured between its hosts to `FILE`, for --topology"},
		&cli.StringFlag{Name: "ring-order", Destination: &o.RingOrder,
			Usage: "order of the hosts for data, by `WHAT`: host (the list's), topology (labels and NICs), measured (by the topology file, or now)", DefaultText: "measured, where the topology file has it"},
	}
}

// saveTopology writes what was measured to a file for --topology, if there is to be one.
func saveTopology(file string, hosts []topology.Host, edges []topology.Edge) error {
	if file == "" {
		return nil
	}
	var notes []string
	for _, site := range topology.Together(hosts, edges) {
		notes = append(notes, site.String())
	}
	if err := os.WriteFile(file, facts.Write(hosts, edges, notes...), 0o644); err != nil {
		return fmt.Errorf("save measurement: %w", err)
	}
	return nil
}

// ringPlan is what the flags ask of the ring.
type ringPlan struct {
	by   topology.By
	file string // its name
	text []byte // nil for none
	*facts.File
}

// readRing checks --ring-order and --topology before any host is asked.
func readRing(o *jobFlags) (ringPlan, error) {
	by, err := topology.ParseBy(o.RingOrder)
	if err != nil {
		return ringPlan{}, &usageError{fmt.Errorf("--ring-order: %w", err), "--ring-order topology"}
	}
	p := ringPlan{by: by, file: o.topologyFile, File: &facts.File{}}
	if p.file == "" {
		if o.given(&o.topologyFile) {
			return p, &usageError{errors.New("--topology: no file name"), "--topology FILE"}
		}
		return p, nil
	}
	if p.text, err = readShort(p.file); err != nil {
		return p, &usageError{fmt.Errorf("read topology file: %w", err), "gorun help topology-file"}
	}
	if p.File, err = facts.Parse(p.text); err != nil {
		return p, &usageError{fmt.Errorf("%s: %w", p.file, err), "gorun help topology-file"}
	}
	return p, nil
}

// measured reports whether the file has any edge between hosts of these names.
func (p ringPlan) measured(names []string) bool {
	return len(p.Edges(named(names))) > 0
}

// named returns hosts of which only the names are known yet.
func named(names []string) []topology.Host {
	hosts := make([]topology.Host, len(names))
	for i, name := range names {
		hosts[i].Name = name
	}
	return hosts
}

// strangers returns a warning if the file describes hosts, and none of these.
func (p ringPlan) strangers(names []string) []string {
	described := p.Unlisted(nil)
	if len(described) == 0 || len(names) == 0 || len(p.Unlisted(names)) < len(described) { // without names, hosts are yet to be discovered
		return nil
	}
	more := ""
	if many := len(described) - 4; many > 0 {
		described, more = described[:4], fmt.Sprintf(" and %d more", many)
	}
	return []string{fmt.Sprintf("%s describes none of these hosts, but %s", p.file, strings.Join(described, ", ")+more)}
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
