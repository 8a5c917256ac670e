package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"gorun/launcher/output"
	"gorun/launcher/survey"
	"gorun/topology"
	"gorun/topology/facts"
)

// look asks hosts for their facts and, if measuring, measures between them. The topology file overrides what hosts
// report.
func look(ctx context.Context, o *jobFlags, ring ringPlan, names []string, measuring bool) ([]topology.Host, []topology.Edge, error) {
	d, err := newDialer(o)
	if err != nil {
		return nil, nil, err
	}
	defer d.close()
	hosts, err := survey.Hosts(ctx, d.doing("topo", "--facts"), names, startTimeout(o))
	if err != nil {
		return nil, nil, err
	}
	if err := ring.override(hosts); err != nil {
		return nil, nil, err
	}
	if len(nicsOf(o)) > 0 {
		for i := range hosts {
			hosts[i].Data = "" // data goes over the named NICs
		}
	}
	warnMoved(o.errs, ring, hosts, measuring)
	edges := ring.Edges(hosts)
	if measuring && len(hosts) > 1 {
		if err := survey.LackNICs(hosts, nicsOf(o)); err != nil {
			return nil, nil, err
		}
		found, err := survey.Measure(ctx, d.doing("topo", "--agent"), hosts, nicsOf(o), o.startTimeout, func(note string) {
			output.Report{W: o.errs}.Warnf("%s", note)
		})
		if err != nil {
			return nil, nil, err
		}
		edges = append(found, edges...) // of two entries for one edge, the last counts
	}
	return hosts, edges, nil
}

// measure measures the edges that the ring should be ordered by, if the user asks for that and no file has them. It
// starts agents on the hosts and ends them, so that the job has the network to itself.
func (p *ringPlan) measure(ctx context.Context, o *jobFlags, names []string) error {
	if p.by != topology.ByMeasured || !o.given(&o.RingOrder) || len(names) < 2 || p.measured(names) {
		return nil
	}
	hosts, edges, err := look(ctx, o, *p, names, true)
	if err != nil {
		return err
	}
	p.text = slices.Concat(p.text, []byte("\n"), facts.WriteEdges(hosts, edges))
	if p.File, err = facts.Parse(p.text); err != nil {
		return &usageError{fmt.Errorf("add what was measured to the topology file: %w", err), "gorun topo -H host1,host2 --measure --save FILE, then --topology FILE"}
	}
	return nil
}

// warnMoved warns of hosts for which the topology file may be out of date, unless they are about to be measured.
func warnMoved(w io.Writer, ring ringPlan, hosts []topology.Host, measuring bool) {
	var names []string
	moved := false
	for _, h := range hosts {
		names = append(names, h.Name)
		if ring.Moved(h) && !measuring {
			output.Report{W: w}.Warnf("%s was moved or started again since %s was written: its labels and edges there do not count", h.Name, ring.file)
			moved = true
		}
	}
	if moved {
		output.Report{W: w}.Hintf("gorun topo -H %s --measure --save %s", strings.Join(names, ","), ring.file)
	}
}
