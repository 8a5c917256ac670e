// Package picture shows hosts and the ring that data takes through them: as text for a terminal, as SVG for a
// browser, and as JSON for programs.
//
// It only renders its input, and renders the same bytes for the same input. It asks and measures nothing, starts
// no goroutine, and does not trust the text that hosts report: characters that could control a terminal, or are not
// allowed in XML, are replaced.
package picture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"gorun/topology"
)

// Cluster is what a picture shows.
type Cluster struct {
	Hosts []topology.Host
	Ring  []topology.Leg  // none for a host by itself
	Ranks [][]int         // the ranks of each host, if decided
	Bound []Bound         // the CPUs of each host's ranks, if decided
	Sites []topology.Site // hosts that measurements place on one machine
}

// Bound is where the ranks of a host run.
type Bound struct {
	Ranks    []int // by local rank; -1 for a slot without one
	Bindings []topology.Binding
	Engine   []int   // CPUs of its threads, none for anywhere
	Spare    [][]int // by local rank: CPUs of the processes that it starts, none for its own
}

// card describes a host in words, for any format.
type card struct {
	title string
	facts []string
	areas []area
}

// area is a NUMA node with its devices, or the place for devices on no known node.
type area struct {
	node              int // -1 unknown
	title             string
	facts, nics, gpus []string
	ranks             []string // and what runs there
}

// describe puts a host into words, and the ranks that run on it.
func (c Cluster) describe(i int) card {
	d := describe(c.Hosts[i])
	if i < len(c.Bound) && len(c.Bound[i].Bindings) > 0 {
		c.Bound[i].describe(c.Hosts[i], &d)
		return d
	}
	if i < len(c.Ranks) && len(c.Ranks[i]) > 0 {
		noun := "ranks "
		if len(c.Ranks[i]) == 1 {
			noun = "rank "
		}
		d.facts = append(d.facts, noun+topology.Ranges(c.Ranks[i]))
	}
	return d
}

// site is hosts that share an ESXi host, by their labels.
type site struct {
	esxi  string // "" if unknown
	title string
	hosts []int
}

// sites returns the hosts by ESXi host, both in the order of the host list.
func (c Cluster) sites() []site {
	var sites []site
	for i, h := range c.Hosts {
		esxi := h.Labels["esxi"]
		at := slices.IndexFunc(sites, func(s site) bool { return s.esxi == esxi })
		if at < 0 {
			at, sites = len(sites), append(sites, site{esxi: esxi})
		}
		sites[at].hosts = append(sites[at].hosts, i)
	}
	for k, s := range sites {
		if s.esxi == "" {
			continue
		}
		var hosts []topology.Host
		for _, i := range s.hosts {
			hosts = append(hosts, c.Hosts[i])
		}
		sites[k].title = clean("ESXi host " + s.esxi + topology.SourceNote("esxi", hosts...))
	}
	return sites
}

func describe(h topology.Host) card {
	c := card{title: clean(name(h))}
	if hostname := clean(h.Hostname); hostname != "" && hostname != c.title {
		c.facts = append(c.facts, "calls itself "+hostname)
	}
	kernel := "Linux " + cmp.Or(h.Kernel, "unknown")
	c.facts = append(c.facts, phrases("", clean(platform(h.Platform)), version(h.Hardware), clean(kernel), clean(h.Arch)), capacity(h))
	var labels []string
	for label, value := range h.Labels {
		if label == "esxi" {
			continue // the box around them shows it
		}
		labels = append(labels, clean(label+" "+value))
	}
	if slices.Sort(labels); len(labels) > 0 {
		c.facts = append(c.facts, strings.Join(labels, ", "))
	}

	areas := map[int]*area{}
	at := func(node int) *area {
		node = max(node, -1)
		if areas[node] == nil {
			areas[node] = &area{node: node, title: fmt.Sprintf("NUMA node %d", node)}
		}
		return areas[node]
	}
	for _, n := range h.Nodes {
		at(n.ID).facts = append(describeNode(n), distances(h.Nodes, n)...)
	}
	for _, nic := range h.NICs {
		a := at(nic.Node)
		a.nics = append(a.nics, describeNIC(nic))
	}
	for _, d := range h.RDMA {
		a := at(d.Node)
		a.nics = append(a.nics, describeRDMA(d))
	}
	for _, gpu := range h.GPUs {
		a := at(gpu.Node)
		a.gpus = append(a.gpus, describeGPU(gpu)...)
	}
	for _, id := range slices.SortedFunc(maps.Keys(areas), func(a, b int) int { return cmp.Compare(uint(a), uint(b)) }) { // -1 comes last
		a := areas[id]
		switch {
		case id < 0:
			a.title = "NUMA node unknown"
		case a.facts == nil: // invisible to this process, as in a container, although a device is on it
			a.title += ", hidden"
		}
		c.areas = append(c.areas, *a)
	}
	if links := linkage(h); len(links) > 0 {
		c.areas = append(c.areas, area{node: -1, title: "between GPUs", facts: links})
	}
	return c
}

func version(hardware string) string {
	if hardware == "" {
		return ""
	}
	return "hardware version " + clean(hardware)
}

// name returns the user's name for the host, or else its own.
func name(h topology.Host) string { return cmp.Or(h.Name, h.Hostname, "this machine") }

func platform(name string) string {
	known := map[string]string{"": "platform unknown", "baremetal": "bare metal", "vmware": "VMware VM", "kvm": "KVM VM", "vm": "VM",
		"xen": "Xen VM", "hyperv": "Hyper-V VM", "nutanix": "Nutanix VM", "gce": "Google Cloud VM", "ec2": "EC2 VM"}
	return cmp.Or(known[name], name)
}

// capacity describes the CPUs and memory that may be used, and the totals where limits leave less.
func capacity(h topology.Host) string {
	there := 0
	for _, n := range h.Nodes {
		there += len(n.CPUs)
	}
	cpus := count(h.CPUs, "CPU")
	if there > h.CPUs && h.CPUs >= 0 {
		cpus = fmt.Sprintf("%d of %s usable", h.CPUs, count(there, "CPU"))
	}
	return cpus + ", " + memory(h.MemBytes)
}

func describeNode(n topology.Node) []string {
	if len(n.CPUs) == 0 {
		return []string{"no CPUs, " + memory(n.MemBytes)}
	}
	last := 0
	for i, cache := range n.Caches {
		if cache.Level > n.Caches[last].Level {
			last = i
		}
	}
	var shared string
	if len(n.Caches) > 0 {
		if c := n.Caches[last]; c.Count == 1 {
			shared = fmt.Sprintf(", L%d cache %s", c.Level, memory(c.Bytes))
		} else {
			shared = fmt.Sprintf(", L%d cache %d × %s", c.Level, c.Count, memory(c.Bytes))
		}
	}
	noun := "CPUs "
	if len(n.CPUs) == 1 {
		noun = "CPU "
	}
	return []string{noun + topology.Ranges(n.CPUs) + ", " + memory(n.MemBytes) + shared}
}

// distances lists the distances to the other nodes, if there are others.
func distances(nodes []topology.Node, from topology.Node) []string {
	var far []string
	for i, to := range nodes {
		if to.ID != from.ID && i < len(from.Distance) {
			far = append(far, fmt.Sprintf("%d to node %d", from.Distance[i], to.ID))
		}
	}
	if len(far) == 0 {
		return nil
	}
	return []string{"distance " + strings.Join(far, ", ")}
}

func describeNIC(n topology.NIC) string {
	facts := []string{clean(n.Driver)}
	switch {
	case !n.Up:
		facts = append(facts, "down")
	case n.Speed <= 0:
		facts = append(facts, "speed unknown")
	case n.Given:
		facts = append(facts, megabits(n.Speed)+" by topology file")
	case n.Nominal():
		facts = append(facts, megabits(n.Speed)+" nominal")
	default:
		facts = append(facts, megabits(n.Speed))
	}
	if n.MTU > 0 {
		facts = append(facts, fmt.Sprintf("MTU %d", n.MTU))
	}
	if n.Queues > 0 {
		facts = append(facts, count(n.Queues, "queue"))
	}
	facts = append(facts, clean(n.PCI))
	if n.VF {
		facts = append(facts, "virtual function")
	}
	if len(n.Lower) > 0 {
		facts = append(facts, clean("over "+strings.Join(n.Lower, " and ")))
	}
	for _, a := range n.Addrs {
		facts = append(facts, clean(a))
	}
	return phrases("NIC "+clean(n.Name)+":", facts...)
}

// count renders a number of things, if it is known.
func count(n int, noun string) string {
	if n < 0 {
		return noun + "s unknown"
	}
	return topology.Count(n, noun)
}

func memory(bytes int64) string {
	if bytes < 0 {
		return "memory unknown"
	}
	if bytes < 1<<30 {
		return topology.Short(float64(bytes)/(1<<20)) + " MiB"
	}
	return topology.Short(float64(bytes)/(1<<30)) + " GiB"
}

func megabits(mbit int) string {
	if mbit < 1000 {
		return fmt.Sprintf("%d Mbit/s", mbit)
	}
	return topology.Short(float64(mbit)/1000) + " Gbit/s"
}

// bandwidth is megabits for bytes per second.
func bandwidth(bytes float64) string {
	if bytes <= 0 {
		return "speed unknown"
	}
	return topology.BitRate(bytes)
}

// phrases makes a list of facts that is broken between them. It leaves out empty ones.
func phrases(head string, facts ...string) string {
	var there []string
	for _, fact := range facts {
		if fact != "" {
			there = append(there, whole(fact))
		}
	}
	list := strings.Join(there, ", ")
	if head == "" || list == "" {
		return whole(head) + list
	}
	return whole(head) + " " + list
}

// longest is how much is shown of a piece of text that a host reports.
const longest = 200

// clean makes text of a host harmless: no control characters, no marks without a width of their own.
func clean(s string) string {
	runes := []rune(strings.ToValidUTF8(s, "?"))
	if len(runes) > longest {
		runes = append(runes[:longest-1], '…')
	}
	for i, r := range runes {
		if !unicode.IsPrint(r) || unicode.Is(unicode.M, r) {
			runes[i] = '?'
		}
	}
	return string(runes)
}
