package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/launcher/output"
	"gorun/launcher/survey"
	"gorun/topology"
	"gorun/topology/picture"
	"gorun/topology/probe"
)

// topoFlags are the flags of gorun topo; hosts are named and reached as in a launch.
type topoFlags struct {
	jobFlags
	json           bool
	svg            string
	nccl           string
	measure, ascii bool
	save           string
}

func (o *topoFlags) table() []cli.Flag {
	flags := o.toHosts([]cli.Flag{
		&cli.BoolFlag{Name: "json", Destination: &o.json, Usage: "write JSON instead of a picture"},
		&cli.PathFlag{Name: "svg", Destination: &o.svg,
			Usage: "write an SVG picture to `FILE`, for a browser; - for standard output"},
		&cli.PathFlag{Name: "emit-nccl", Destination: &o.nccl,
			Usage: "write one machine's devices to `FILE` for NCCL_TOPO_FILE; - for standard output"},
		&cli.BoolFlag{Name: "measure", Destination: &o.measure,
			Usage: "measure round-trip times and, for a moment on the edges that matter, bandwidth between the hosts"},
		&cli.PathFlag{Name: "save", Destination: &o.save, Usage: "write what was measured to `FILE`, for --topology"},
		&cli.BoolFlag{Name: "ascii", Destination: &o.ascii,
			Usage: "draw with ASCII characters", DefaultText: "if the locale is not UTF-8"},
	}, "topology", "ring-order", "np", "bind-to", "map-by", "network-interfaces")
	return reworded(flags, map[string]string{
		"np":      "show where `N` ranks would run",
		"bind-to": "show the CPUs of each rank if it is bound to `WHAT`: none, hwthread, core, core:N, numa, socket",
	})
}

func topoCommand() *cli.Command {
	o := new(topoFlags)
	return &cli.Command{
		Name:        "topo",
		Usage:       "show NUMA nodes, NICs and GPUs of hosts, and their ring",
		UsageText:   "gorun topo [-H host1,host2 [--measure [--save FILE]] ] [-np N --bind-to WHAT] [--json | --svg FILE | --emit-nccl FILE] [--ascii]",
		Description: "Without -H it shows this machine. Names in JSON, which stay as they are:\n" + picture.JSONHelp,
		Flags:       o.table(),
		Action: func(c *cli.Context) error {
			o.read(c)
			if err := cmp.Or(o.noArgs(), o.checkFiles()); err != nil {
				return err
			}
			return topo(c.Context, o)
		},
	}
}

// checkFiles refuses names of files that begin with a dash, as a flag does when the name before it was left out. Such a
// file is ./--name.
func (o *topoFlags) checkFiles() error {
	for _, file := range []*string{&o.svg, &o.nccl, &o.save} {
		if name := *file; o.given(file) && name != "-" && (name == "" || name[0] == '-') {
			return &usageError{fmt.Errorf("--%s: no file name", o.names[file]), "--" + o.names[file] + " FILE"}
		}
	}
	if o.given(&o.save) && !o.measure {
		return &usageError{errors.New("--save without --measure"), "gorun topo -H host1,host2 --measure --save FILE"}
	}
	return nil
}

// topo shows what is known about machines before a job starts. Bandwidths are what interfaces report; measuring loads
// the network, so users have to ask for it.
func topo(ctx context.Context, o *topoFlags) error {
	if err := cmp.Or(checkStart(&o.jobFlags), o.atMostOne(&o.json, &o.svg, &o.nccl)); err != nil {
		return err
	}
	cluster, err := inspect(ctx, o)
	if err != nil {
		return err
	}
	for _, note := range topology.Duplicates(cluster.Hosts) {
		output.Report{W: o.errs}.Warnf("%s", note)
	}
	for _, host := range topology.WithoutNICs(cluster.Hosts, nicsOf(&o.jobFlags)) {
		output.Report{W: o.errs}.Warnf("%s has none of %s that is up", host, strings.Join(nicsOf(&o.jobFlags), ","))
	}
	warnIdle(o.errs, cluster.Hosts)
	file, what := "-", "picture"
	var out []byte
	switch {
	case o.given(&o.json):
		what = "JSON"
		if out, err = picture.JSON(cluster); err != nil {
			return err
		}
	case o.given(&o.svg):
		file, out = o.svg, []byte(picture.SVG(cluster))
	case o.given(&o.nccl):
		file, what = o.nccl, "file for NCCL"
		if out, err = picture.NCCL(cluster.Hosts[0]); err != nil {
			return err
		}
	default:
		out = []byte(output.PrintableLines(picture.Text(cluster)))
		if o.ascii || !utf8Locale() {
			out = []byte(picture.ASCII(string(out)))
		}
	}
	if file != "-" {
		err = os.WriteFile(file, out, 0o644)
	} else {
		_, err = o.out.Write(out)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return nil
}

// inspect returns the facts of this machine, or of the hosts that the flags name.
func inspect(ctx context.Context, o *topoFlags) (picture.Cluster, error) {
	ring, err := readRing(&o.jobFlags)
	if err != nil {
		return picture.Cluster{}, err
	}
	bind, err := readBind(&o.jobFlags)
	if err != nil {
		return picture.Cluster{}, err
	}
	find := inspectHosts
	if !o.given(&o.hosts) && !o.given(&o.hostfile) {
		find = inspectHere
	}
	found, err := find(ctx, o, ring)
	if err != nil {
		return picture.Cluster{}, err
	}
	return found, placeBound(&found, bind, nicsOf(&o.jobFlags))
}

// inspectHere returns the facts of this machine.
func inspectHere(ctx context.Context, o *topoFlags, ring ringPlan) (picture.Cluster, error) {
	if o.measure {
		return picture.Cluster{}, &usageError{errors.New("--measure: no hosts"), "gorun topo -H host1,host2 --measure"}
	}
	if o.given(&o.RingOrder) && ring.by == topology.ByMeasured {
		return picture.Cluster{}, &usageError{errors.New("--ring-order measured: no hosts"), "gorun topo -H host1,host2 --ring-order measured"}
	}
	host, err := probe.Probe(ctx, "/")
	if err != nil {
		return picture.Cluster{}, err
	}
	host.Name = host.Hostname
	for _, warning := range ring.strangers([]string{host.Name}) {
		output.Report{W: o.errs}.Warnf("%s", warning)
	}
	found := picture.Cluster{Hosts: []topology.Host{host}}
	if err := ring.override(found.Hosts); err != nil {
		return found, err
	}
	found.Ranks, err = ranksHere(&o.jobFlags)
	return found, err
}

// inspectHosts returns the facts of the hosts that the flags name, and their ring.
func inspectHosts(ctx context.Context, o *topoFlags, ring ringPlan) (picture.Cluster, error) {
	placement, err := place(&o.jobFlags)
	if err != nil {
		return picture.Cluster{}, err
	}
	if n := len(placement.Hosts); n != 1 && o.given(&o.nccl) {
		return picture.Cluster{}, &usageError{fmt.Errorf("--emit-nccl: %d hosts, but the file is for one", n), "gorun topo -H host1 --emit-nccl FILE"}
	}
	var (
		names []string
		ranks [][]int
	)
	for _, h := range placement.Hosts {
		names, ranks = append(names, h.Name), append(ranks, h.Ranks)
	}
	for _, warning := range ring.strangers(names) {
		output.Report{W: o.errs}.Warnf("%s", warning)
	}
	measuring := o.measure || o.given(&o.RingOrder) && ring.by == topology.ByMeasured && !ring.measured(names)
	hosts, edges, err := look(ctx, &o.jobFlags, ring, names, measuring)
	if err != nil {
		return picture.Cluster{}, err
	}
	if err := saveTopology(o.save, hosts, edges); err != nil {
		return picture.Cluster{}, err
	}
	used, rails := topology.OnlyNICs(hosts, nicsOf(&o.jobFlags)), survey.Rails(hosts, nicsOf(&o.jobFlags))
	edges = topology.WithSums(used, edges, rails)
	order := topology.OrderBy(ctx, ring.by, used, edges)
	return picture.Cluster{Hosts: hosts, Ring: order.Legs(used, edges), Ranks: ranks, Sites: topology.Together(hosts, edges)}, nil
}

// ranksHere numbers the ranks that the flags want on this machine, none if no flag mentions ranks.
func ranksHere(o *jobFlags) ([][]int, error) {
	np := o.np
	switch {
	case o.given(&o.np) && np < 1:
		return nil, &usageError{fmt.Errorf("-np %d: must be at least 1", np), ""}
	case !o.given(&o.np) && !o.given(&o.bindTo) && !o.given(&o.mapBy):
		return nil, nil
	}
	ranks := make([]int, max(np, 1))
	for i := range ranks {
		ranks[i] = i
	}
	return [][]int{ranks}, nil
}

// placeBound decides which CPUs the ranks of each host would run on.
func placeBound(found *picture.Cluster, bind topology.Bind, nics []string) error {
	for i, ranks := range found.Ranks {
		h := found.Hosts[i]
		bind.NICs = topology.NICNames(nics, h.NICs)
		devices := make([]string, len(ranks))
		for slot := range devices {
			devices[slot] = strconv.Itoa(slot) // programs choose GPUs by their local rank
		}
		bound, err := bind.Place(h, devices)
		if err != nil {
			return &usageError{fmt.Errorf("%s: %w", h.Name, err), "--bind-to numa asks for less"}
		}
		engine := bind.Beside(h, bound)
		found.Bound = append(found.Bound, picture.Bound{Ranks: ranks, Bindings: bound, Engine: engine, Spare: bind.Spare(h, bound, engine)})
	}
	return nil
}

// warnIdle prints one line if hosts have faster NICs than the ones that carry data.
func warnIdle(w io.Writer, hosts []topology.Host) {
	var notes, nics []string
	for _, h := range hosts {
		if nic, note := h.Idle(); note != "" {
			notes = append(notes, h.Name+": "+note)
			nics = append(nics, nic)
		}
	}
	if len(notes) == 0 {
		return
	}
	more := ""
	if others := len(notes) - 1; others > 0 {
		more = fmt.Sprintf(", and alike on %s", topology.Count(others, "other host"))
	}
	slices.Sort(nics)
	report := output.Report{W: w}
	report.Warnf("%s%s", notes[0], more)
	report.Hintf("--network-interfaces %s, if all hosts reach each other there", strings.Join(slices.Compact(nics), ","))
}

// utf8Locale reads the environment as the C library does.
func utf8Locale() bool {
	locale := cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG"))
	locale = strings.ReplaceAll(strings.ToUpper(locale), "-", "")
	return strings.Contains(locale, "UTF8")
}
