package picture

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"gorun/topology"
)

func describeRDMA(d topology.RDMA) string {
	facts := []string{clean(d.Driver)}
	if d.NIC != "" {
		facts = append(facts, "beside "+clean(d.NIC))
	}
	for _, p := range d.Ports {
		port := clean(p.Link)
		if kinds := gidTypes(p); kinds != "" && p.Link != "InfiniBand" {
			port = kinds
		}
		switch {
		case !p.Active:
			port += " down"
		case p.Speed > 0:
			port += " " + megabits(p.Speed)
		}
		facts = append(facts, fmt.Sprintf("port %d %s", p.Number, port))
		if gid := mainGID(p); gid != "" {
			facts = append(facts, gid)
		}
	}
	return phrases("RDMA "+clean(d.Name)+":", append(facts, clean(d.PCI))...)
}

// mainGID names the entry that data takes by default: one made of an IP address, with RoCE v2 if there is one.
func mainGID(p topology.Port) string {
	found := ""
	for _, gid := range p.GIDs {
		at, err := netip.ParseAddr(gid.GID)
		if err != nil || !at.Is4In6() && p.Link != "InfiniBand" {
			continue
		}
		if newer := strings.HasSuffix(gid.Type, "v2"); found == "" || newer {
			found = fmt.Sprintf("GID %d (%s)", gid.Index, at.Unmap())
			if newer {
				break
			}
		}
	}
	return found
}

// gidTypes names the kinds of RoCE for which a port has addresses.
func gidTypes(p topology.Port) string {
	var kinds []string
	for _, gid := range p.GIDs {
		if kind := clean(strings.TrimPrefix(gid.Type, "IB/")); kind != "" && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return strings.Join(kinds, " and ")
}

// describeGPU returns a line for the GPU and one for its slices.
func describeGPU(g topology.GPU) []string {
	facts := []string{clean(g.Name)}
	if g.MemBytes > 0 {
		facts = append(facts, memory(g.MemBytes))
	}
	switch {
	case g.Mode == "vgpu" && g.Profile != "":
		facts = append(facts, "vGPU "+clean(g.Profile))
	case g.Mode != "" && g.Mode != "none":
		facts = append(facts, clean(g.Mode))
	}
	facts = append(facts, clean(g.Licence), clean(g.PCI))
	lines := []string{phrases(fmt.Sprintf("GPU %d:", g.Index), facts...)}
	var slicing []string
	for _, m := range g.MIG {
		slicing = append(slicing, clean(m.Profile))
	}
	if len(slicing) > 0 {
		lines = append(lines, phrases(fmt.Sprintf("GPU %d is cut into MIG", g.Index), slicing...))
	}
	return lines
}

// linkage describes how GPUs reach each other: in a few words if that is the same for all, else as a table.
func linkage(h topology.Host) []string {
	if len(h.GPUs) < 2 {
		return nil
	}
	var kinds []string
	for i, g := range h.GPUs {
		for j, link := range g.Links {
			if i != j && j < len(h.GPUs) && !slices.Contains(kinds, link) {
				kinds = append(kinds, link)
			}
		}
	}
	if len(kinds) == 0 || len(kinds) == 1 && kinds[0] == "" {
		return nil
	}
	if len(kinds) == 1 {
		facts := []string{clean(kinds[0]) + " " + meaning(kinds[0])}
		if h.Switches > 0 {
			facts = append(facts, fmt.Sprintf("NVSwitches: %d", h.Switches))
		}
		return facts
	}
	const cell = 5
	head := strings.Repeat(" ", cell+1)
	for _, g := range h.GPUs {
		head += pad(fmt.Sprintf(" %d", g.Index), cell)
	}
	rows := []string{whole(head)}
	for _, g := range h.GPUs {
		row := pad(fmt.Sprintf("GPU %d", g.Index), cell+1)
		for _, link := range g.Links {
			row += pad(" "+cut(clean(link), cell-1), cell)
		}
		rows = append(rows, whole(row))
	}
	return rows
}

func meaning(link string) string {
	if strings.HasPrefix(link, "NV") {
		return "(so many NVLinks) between any two"
	}
	known := map[string]string{"PIX": "(one PCI bridge)", "PXB": "(several PCI bridges)", "PHB": "(the PCI host bridge)",
		"NODE": "(between host bridges of a NUMA node)", "SYS": "(between NUMA nodes)"}
	if text, ok := known[link]; ok {
		return text + " between any two"
	}
	return "between any two"
}
