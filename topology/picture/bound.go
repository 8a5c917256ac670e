package picture

import (
	"slices"
	"strconv"
	"strings"

	"gorun/topology"
)

// describe adds to each area of a host the ranks that run there. Ranks that span several nodes are listed with the
// host.
func (b Bound) describe(h topology.Host, d *card) {
	for i, bound := range b.Bindings {
		rank := -1
		if i < len(b.Ranks) {
			rank = b.Ranks[i]
		}
		first := slices.IndexFunc(b.Bindings[:i], func(o topology.Binding) bool { return slices.Equal(o.CPUs, bound.CPUs) && o.Why == bound.Why })
		if rank < 0 || first >= 0 && b.Ranks[first] >= 0 {
			continue // runs here alone, or was listed with an earlier one
		}
		var together []int
		for j := i; j < len(b.Bindings) && j < len(b.Ranks); j++ {
			if o := b.Bindings[j]; b.Ranks[j] >= 0 && slices.Equal(o.CPUs, bound.CPUs) && o.Why == bound.Why {
				together = append(together, b.Ranks[j])
			}
		}
		noun := "rank "
		if len(together) > 1 {
			noun = "ranks "
		}
		d.put(h, bound.CPUs, phrases(noun+topology.Ranges(together)+":", cpuList(bound.CPUs), clean(bound.Why)))
	}
	if len(b.Engine) > 0 {
		d.put(h, b.Engine, phrases("engine:", cpuList(b.Engine)))
	} else if len(b.Bindings) > 0 {
		d.facts = append(d.facts, "engine: any CPU")
	}
	for i := range d.areas {
		if line := b.cells(h, d.areas[i].node); line != "" {
			d.areas[i].ranks = append([]string{line}, d.areas[i].ranks...)
		}
	}
}

func cpuList(cpus []int) string {
	if len(cpus) == 1 {
		return "CPU " + topology.Ranges(cpus)
	}
	return "CPUs " + topology.Ranges(cpus)
}

// put adds a line to the area with all of the CPUs.
func (d *card) put(h topology.Host, cpus []int, line string) {
	for _, n := range h.Nodes {
		inside := !slices.ContainsFunc(cpus, func(cpu int) bool { return !slices.Contains(n.CPUs, cpu) })
		at := slices.IndexFunc(d.areas, func(a area) bool { return a.node == n.ID })
		if inside && at >= 0 {
			d.areas[at].ranks = append(d.areas[at].ranks, line)
			return
		}
	}
	d.facts = append(d.facts, line)
}

// cells shows the cores of a node in a row, each with its owner: a rank, the engine or none; * is several ranks.
// The row is empty if all cores are alike.
func (b Bound) cells(h topology.Host, node int) string {
	at := slices.IndexFunc(h.Nodes, func(n topology.Node) bool { return n.ID == node })
	if at < 0 {
		return ""
	}
	var row []string
	for _, core := range h.Nodes[at].ByCore() {
		var marks []string
		for _, cpu := range core {
			if mark := b.mark(h, cpu); !slices.Contains(marks, mark) {
				marks = append(marks, mark)
			}
		}
		row = append(row, strings.Join(marks, "/"))
	}
	if same := slices.Compact(slices.Clone(row)); len(same) < 2 {
		return ""
	}
	return "cores: " + strings.Join(row, " ")
}

func (b Bound) mark(h topology.Host, cpu int) string {
	mark := "."
	if len(h.Usable) > 0 && !slices.Contains(h.Usable, cpu) {
		mark = "-"
	}
	if slices.ContainsFunc(b.Spare, func(cpus []int) bool { return slices.Contains(cpus, cpu) }) {
		mark = "c"
	}
	if slices.Contains(b.Engine, cpu) {
		mark = "e"
	}
	owners := 0
	for i, bound := range b.Bindings {
		if i < len(b.Ranks) && b.Ranks[i] >= 0 && slices.Contains(bound.CPUs, cpu) {
			owners++
			mark = strconv.Itoa(b.Ranks[i])
		}
	}
	if owners > 1 {
		mark = "*"
	}
	return mark
}

// Binding draws one host, with the CPUs of its ranks and the engine, as lines.
func Binding(h topology.Host, b Bound) []string {
	return strings.Split(strings.TrimSuffix(Text(Cluster{Hosts: []topology.Host{h}, Bound: []Bound{b}}), "\n"), "\n")
}

// legend explains the row of cores.
const legend = "cores: a number is a rank, e the engine, c children of ranks, . nobody, - unusable, * several ranks"
