// Package facts reads what an administrator knows of hosts and machines do not tell, from a file in YAML,
// and writes such a file from what was measured:
//
//	hosts:
//	  host1:
//	    esxi: esx-07        # labels: where edges of the ring cross from one to another
//	    rack: r1
//	    zone: z1
//	    by: vCenter         # who told these labels, if it was not who wrote the file
//	    session: 0x37946d2f # of the VM, as VMware Tools tell: with another one labels and edges are from before a move
//	    nics:
//	      ens192: {node: 0, speed_mbit: 25000}
//	    gpus:
//	      0: {node: 1}
//	edges:
//	  - {from: host1, to: host2, mbit: 9400, rtt_us: 55, by: job} # or by probe, as if nothing is said
//	  - {from: host1, to: host2, net: 10.0.1.0/24, mbit: 9400}    # in one of several networks
//	  - {from: host1, to: host3, blocked: true}                   # it could not be measured
//
// It opens no file itself. What it does not understand is an error with the line, not ignored: a
// misspelt fact would silently make a bad ring.
package facts

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"gorun/topology"
)

// MaxFile bounds a file, in bytes.
const MaxFile = 4 << 20

// File is what was read.
type File struct {
	hosts map[string]host
	edges []edge
}

type host struct {
	labels  map[string]string
	by      string // who told them; "" for whoever wrote the file
	session string
	nics    []device
	gpus    []device
}

// device is what is said of a NIC or GPU.
type device struct {
	line  int
	name  string // of a NIC
	index int    // of a GPU
	node  *int
	speed int // Mbit/s, 0 if nothing is said
}

type edge struct {
	from, to  string
	bandwidth float64 // bytes per second
	rtt       float64 // seconds
	inJob     bool
	blocked   bool
	rail      string
}

// topologyFile is who told what a file says without saying who did.
const topologyFile = "topology file"

// labels are those that a file gives hosts.
var labels = []string{"esxi", "rack", "zone"}

// Override replaces what the host said of itself by what the file says of it. Facts of hosts that the file
// does not name stay as they are. A device or NUMA node that the host does not have is an error.
func (f *File) Override(h *topology.Host) error {
	if missing := f.Apply(h); len(missing) > 0 {
		return missing[0]
	}
	return nil
}

// Apply is Override for a host that changed since the file was written: it does all that it can, and returns what
// the host does not have.
func (f *File) Apply(h *topology.Host) (missing []error) {
	facts, ok := f.hosts[bare(h.Name)]
	if !ok {
		return nil
	}
	known := map[string]string{} // a new one: the old may be shared
	maps.Copy(known, h.Labels)
	if !f.Moved(*h) && len(facts.labels) > 0 {
		maps.Copy(known, facts.labels)
		sources := map[string]string{}
		maps.Copy(sources, h.LabelSources)
		for label := range facts.labels {
			sources[label] = cmp.Or(facts.by, topologyFile)
		}
		h.LabelSources = sources
	}
	if len(known) > 0 {
		h.Labels = known
	}
	lacks := func(d device, format string, what any) {
		missing = append(missing, fmt.Errorf("line %d: %s has no "+format, d.line, h.Name, what))
	}
	for _, d := range slices.Concat(facts.nics, facts.gpus) {
		if d.node != nil && !hasNode(h, *d.node) {
			lacks(d, "NUMA node %d", *d.node)
			d.node = nil
		}
		switch {
		case d.name != "" && !overrideNIC(h, d):
			lacks(d, "NIC %s", d.name)
		case d.name == "" && !overrideGPU(h, d):
			lacks(d, "GPU %d", d.index)
		}
	}
	return missing
}

// Moved reports whether a virtual machine may be on another host than when the file was written, because its session is
// another one. A session says no more than that: it may also have been started again. The file's labels of it and edges
// from and to it then do not count.
func (f *File) Moved(h topology.Host) bool {
	then := f.hosts[bare(h.Name)].session
	return then != "" && h.Session != "" && h.Session != then
}

// Undated returns the labels that the file gives a host without the session that they are of, so that they count after a move
// as before.
func (f *File) Undated(h topology.Host) (undated []string) {
	of := f.hosts[bare(h.Name)]
	for _, label := range labels {
		if of.labels[label] != "" && (of.session == "" || h.Session == "") {
			undated = append(undated, label)
		}
	}
	return undated
}

// hasNode reports whether a NUMA node may be one of the host's. Where the kernel tells of none, as in a container, nobody
// knows better.
func hasNode(h *topology.Host, node int) bool {
	return node < 0 || len(h.Nodes) == 0 || slices.ContainsFunc(h.Nodes, func(n topology.Node) bool { return n.ID == node })
}

// Strangers returns the names of hosts that the file describes, or speaks of at the end of an edge, and that are not among
// these.
func (f *File) Strangers(names []string) []string {
	known := map[string]bool{}
	for _, name := range names {
		known[bare(name)] = true
	}
	strangers := slices.Collect(maps.Keys(f.hosts))
	for _, e := range f.edges {
		strangers = append(strangers, e.from, e.to)
	}
	strangers = slices.DeleteFunc(strangers, func(name string) bool { return known[name] })
	slices.Sort(strangers)
	return slices.Compact(strangers)
}

func overrideNIC(h *topology.Host, d device) bool {
	for i := range h.NICs {
		if n := &h.NICs[i]; n.Name == d.name {
			if d.node != nil {
				n.Node = *d.node
			}
			if d.speed > 0 {
				n.Speed, n.Given = d.speed, true
			}
			return true
		}
	}
	return false
}

func overrideGPU(h *topology.Host, d device) bool {
	for i := range h.GPUs {
		if g := &h.GPUs[i]; g.Index == d.index {
			if d.node != nil {
				g.Node = *d.node
			}
			return true
		}
	}
	return false
}

// Edges returns what the file says of the edges between hosts, by their names.
func (f *File) Edges(hosts []topology.Host) []topology.Edge {
	at := map[string]int{}
	for i, h := range hosts {
		if !f.Moved(h) {
			at[bare(h.Name)] = i
		}
	}
	var edges []topology.Edge
	for _, e := range f.edges {
		from, known := at[e.from]
		to, alsoKnown := at[e.to]
		if known && alsoKnown {
			edges = append(edges, topology.Edge{From: from, To: to, Bandwidth: e.bandwidth, RTT: e.rtt, InJob: e.inJob, Blocked: e.blocked, Rail: e.rail})
		}
	}
	return edges
}

// bare is a host's name without the user that logs in there.
func bare(name string) string { return name[strings.LastIndexByte(name, '@')+1:] }

// Write renders what was measured, and the labels of hosts, as a file that Parse reads. Notes become comments.
func Write(hosts []topology.Host, edges []topology.Edge, notes ...string) []byte {
	var b bytes.Buffer
	b.WriteString("# measured by gorun topo\n")
	for _, note := range notes {
		fmt.Fprintf(&b, "# %s\n", strings.Map(oneLine, note))
	}
	b.WriteString("hosts:\n")
	for _, h := range hosts {
		fmt.Fprintf(&b, "  %q:\n", bare(h.Name))
		for _, key := range labels {
			if value := h.Labels[key]; value != "" {
				fmt.Fprintf(&b, "    %s: %q\n", key, value)
			}
		}
		if by := teller(h); by != "" {
			fmt.Fprintf(&b, "    by: %q\n", by)
		}
		if h.Session != "" {
			fmt.Fprintf(&b, "    session: %q\n", h.Session)
		}
	}
	b.Write(WriteEdges(hosts, edges))
	return b.Bytes()
}

// teller is who told all labels of a host, "" if that is nobody else than a file like this one, or several did.
func teller(h topology.Host) (by string) {
	for _, key := range labels {
		if h.Labels[key] == "" {
			continue
		}
		source := h.LabelSources[key]
		if source == topologyFile || source == "" || by != "" && source != by {
			return ""
		}
		by = source
	}
	return by
}

// oneLine replaces what would end a comment.
func oneLine(r rune) rune {
	if !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

// WriteEdges renders what was measured as the end of a file that has no edges.
func WriteEdges(hosts []topology.Host, edges []topology.Edge) []byte {
	var b bytes.Buffer
	b.WriteString("edges:\n")
	for _, e := range edges {
		fmt.Fprintf(&b, "- {from: %q, to: %q", bare(hosts[e.From].Name), bare(hosts[e.To].Name))
		if e.Bandwidth > 0 {
			fmt.Fprintf(&b, ", mbit: %.1f", e.Bandwidth*8/1e6)
		}
		if e.RTT > 0 {
			fmt.Fprintf(&b, ", rtt_us: %.1f", e.RTT*1e6)
		}
		if e.Blocked {
			b.WriteString(", blocked: true")
		}
		if e.InJob {
			b.WriteString(", by: job")
		}
		if e.Rail != "" {
			fmt.Fprintf(&b, ", net: %q", e.Rail)
		}
		b.WriteString("}\n")
	}
	return b.Bytes()
}
