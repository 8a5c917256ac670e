// Package facts reads an administrator's knowledge of hosts, which machines do not report, from a YAML file,
// and writes such a file from measurements:
//
//	hosts:
//	  host1:
//	    esxi: esx-07        # labels: where edges of the ring cross from one to another
//	    rack: r1
//	    zone: z1
//	    by: vCenter         # the source of these labels, unless it is the author of the file
//	    session: 0x37946d2f # of the VM, from VMware Tools; if it has changed, the VM has moved since
//	    nics:
//	      ens192: {node: 0, speed_mbit: 25000}
//	    gpus:
//	      0: {node: 1}
//	edges:
//	  - {from: host1, to: host2, mbit: 9400, rtt_us: 55, by: job} # or by probe, the default
//	  - {from: host1, to: host2, net: 10.0.1.0/24, mbit: 9400}    # in one of several networks
//	  - {from: host1, to: host3, blocked: true}                   # could not be measured
//
// It opens no file itself. What it does not understand is an error that names the line, because a
// misspelt fact would otherwise make a bad ring.
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

// File is the content of a file of facts.
type File struct {
	hosts map[string]host
	edges []edge
}

type host struct {
	labels  map[string]string
	by      string // their source; "" for the author of the file
	session string
	nics    []device
	gpus    []device
}

// device is the facts about a NIC or GPU.
type device struct {
	line  int
	name  string // of a NIC
	index int    // of a GPU
	node  *int
	speed int // Mbit/s, 0 if not given
}

type edge struct {
	from, to  string
	bandwidth float64 // bytes per second
	rtt       float64 // seconds
	inJob     bool
	blocked   bool
	rail      string
}

// topologyFile is the source of facts for which a file names no other.
const topologyFile = "topology file"

// labels are the labels that a file may give hosts.
var labels = []string{"esxi", "rack", "zone"}

// Override replaces facts that the host reported by those of the file. Facts of hosts that the file
// does not name stay as they are. A device or NUMA node that the host does not have is an error.
func (f *File) Override(h *topology.Host) error {
	if missing := f.Apply(h); len(missing) > 0 {
		return missing[0]
	}
	return nil
}

// Apply is Override for a host that changed since the file was written: it applies what it can, and returns an error
// about what the host does not have.
func (f *File) Apply(h *topology.Host) (missing []error) {
	facts, ok := f.hosts[bare(h.Name)]
	if !ok {
		return nil
	}
	known := map[string]string{} // a new map: the old one may be shared
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

// Moved reports whether a virtual machine may be on another host than when the file was written, because its session
// has changed; it may also have been restarted. The file's labels of it and edges from and to it then do not count.
func (f *File) Moved(h topology.Host) bool {
	then := f.hosts[bare(h.Name)].session
	return then != "" && h.Session != "" && h.Session != then
}

// Undated returns the labels that the file gives a host without a session, so that they still count after a move.
func (f *File) Undated(h topology.Host) (undated []string) {
	of := f.hosts[bare(h.Name)]
	for _, label := range labels {
		if of.labels[label] != "" && (of.session == "" || h.Session == "") {
			undated = append(undated, label)
		}
	}
	return undated
}

// hasNode reports whether the host may have a NUMA node. Where the kernel reports none, as in a container, it may have
// any.
func hasNode(h *topology.Host, node int) bool {
	return node < 0 || len(h.Nodes) == 0 || slices.ContainsFunc(h.Nodes, func(n topology.Node) bool { return n.ID == node })
}

// Unlisted returns the names of hosts that the file describes, or names at the end of an edge, but that are not among
// these.
func (f *File) Unlisted(names []string) []string {
	known := map[string]bool{}
	for _, name := range names {
		known[bare(name)] = true
	}
	unlisted := slices.Collect(maps.Keys(f.hosts))
	for _, e := range f.edges {
		unlisted = append(unlisted, e.from, e.to)
	}
	unlisted = slices.DeleteFunc(unlisted, func(name string) bool { return known[name] })
	slices.Sort(unlisted)
	return slices.Compact(unlisted)
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

// Edges returns the file's measurements of edges between hosts, which it finds by name.
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

// Write renders measurements and the labels of hosts as a file that Parse reads. Notes become comments.
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
		if by := labelSource(h); by != "" {
			fmt.Fprintf(&b, "    by: %q\n", by)
		}
		if h.Session != "" {
			fmt.Fprintf(&b, "    session: %q\n", h.Session)
		}
	}
	b.Write(WriteEdges(hosts, edges))
	return b.Bytes()
}

// labelSource returns the source of all labels of a host, "" if that is a topology file, or if there are several.
func labelSource(h topology.Host) (by string) {
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

// oneLine replaces characters that would end a comment.
func oneLine(r rune) rune {
	if !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

// WriteEdges renders measurements as the end of a file that has no edges.
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
