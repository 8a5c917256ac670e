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

// unlistedNote returns a note about the hosts in the file that are not among these, and whether it is a warning: the
// file describes no others.
func (p ringPlan) unlistedNote(names []string) (note string, warns bool) {
	left := p.Unlisted(names)
	if len(left) == 0 || len(names) == 0 { // hosts that are not discovered yet may be the missing ones
		return "", false
	}
	warns = len(left) == len(p.Unlisted(nil))
	more := ""
	if many := len(left) - 4; many > 0 {
		left, more = left[:4], fmt.Sprintf(" and %d more", many)
	}
	list := strings.Join(left, ", ") + more
	if warns {
		return fmt.Sprintf("%s describes none of these hosts, but %s", p.file, list), true
	}
	return fmt.Sprintf("%s also describes %s, which have no part in this", p.file, list), false
}

// notes returns the lines about unlisted hosts; without a warning, only for users who want to know everything.
func (p ringPlan) notes(names []string, all bool) []string {
	switch note, warns := p.unlistedNote(names); {
	case warns:
		return []string{"gorun: warning: " + note}
	case note != "" && all:
		return []string{"gorun: " + note}
	}
	return nil
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
