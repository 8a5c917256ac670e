package picture

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gorun/topology"
)

// NCCL writes a host's devices in the format of NCCL_TOPO_FILE: NUMA nodes, below them the PCI bridges, and below those
// GPUs with their NVLinks and the PCI functions of network devices. A virtual machine hides the nodes of its devices
// from NCCL; this file, made with a topology file, supplies them.
//
// NCCL finds the devices that it uses by their PCI addresses, and adds the properties of these devices and of
// everything above them (width and speed of links, the CPU's model). For a network device with a <net> element it does
// not, and the file would have to supply all of that correctly. So the file has no <net>.
//
// The file describes processors completely: a network device that is not on PCI is put below the first node, and NCCL
// does not look up that node's properties if it has none of its GPUs.
func NCCL(h topology.Host) ([]byte, error) {
	system := element{name: "system", attributes: []string{"version", "1"}}
	ids := []int{}
	affinity := map[int]string{}
	for _, n := range h.Nodes {
		ids, affinity[n.ID] = append(ids, n.ID), mask(n.CPUs)
	}
	found := devices(h)
	for _, d := range found {
		if !slices.Contains(ids, d.node) {
			ids = append(ids, d.node)
		}
	}
	for _, id := range ids {
		cpu := &element{name: "cpu", attributes: []string{"numaid", strconv.Itoa(id)}}
		if text := affinity[id]; text != "" && len(text) <= longestValue {
			cpu.attributes = append(cpu.attributes, "affinity", text)
		}
		cpu.attributes = append(cpu.attributes, processor(h)...)
		for _, d := range found {
			if d.node == id {
				cpu.place(d)
			}
		}
		system.children = append(system.children, cpu)
	}
	out, err := xml.MarshalIndent(&system, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write NCCL topology: %w", err)
	}
	return append(out, '\n'), nil
}

// longestValue is the longest attribute that NCCL accepts. NCCL reads the CPUs of a node itself if they are missing.
const longestValue = 254

// processor returns the attributes of the host's processors. Text from another machine is passed on only if it is well
// formed, because NCCL does not understand XML entities.
func processor(h topology.Host) []string {
	arch := map[string]string{"amd64": "x86_64", "arm64": "arm64", "ppc64le": "ppc64"}[h.Arch]
	if arch == "" {
		return nil
	}
	p := h.Processor
	if arch != "x86_64" || !vendor.MatchString(p.Vendor) || p.Family < 1 || p.Model < 0 {
		return []string{"arch", arch}
	}
	family := p.Family
	if base := 0xf; family > base { // NCCL adds CPUID's extended family in this way
		family = base + (family-base)<<4
	}
	return []string{"arch", arch, "vendor", p.Vendor, "familyid", strconv.Itoa(family), "modelid", strconv.Itoa(p.Model)}
}

// vendor matches a CPUID vendor, address the address of a PCI function.
var (
	vendor  = regexp.MustCompile(`^[A-Za-z ]{1,12}$`)
	address = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
)

// mostLinks is the greatest number of NVLinks that any GPU has.
const mostLinks = 18

// device is a PCI device with the properties that NCCL reads.
type device struct {
	pci, class string
	path       []string
	node       int
	inside     *element // nil for none
}

// Classes of PCI functions.
const (
	bridgeClass   = "0x060400"
	gpuClass      = "0x030200"
	ethernetClass = "0x020000"
	ibClass       = "0x020700"
)

func devices(h topology.Host) []device {
	var out, merged []device
	for i, g := range h.GPUs {
		gpu := &element{name: "gpu", attributes: []string{"dev", strconv.Itoa(g.Index)}}
		sum := 0
		for j, link := range g.Links {
			count, isNVLink := strings.CutPrefix(link, "NV")
			n, err := strconv.Atoi(count)
			if !isNVLink || err != nil || n < 1 || n > mostLinks || j >= len(h.GPUs) || i == j || !address.MatchString(h.GPUs[j].PCI) {
				continue
			}
			sum += n
			gpu.children = append(gpu.children, &element{name: "nvlink",
				attributes: []string{"target", h.GPUs[j].PCI, "count", strconv.Itoa(n), "tclass", gpuClass}})
		}
		// Then all links of a GPU lead to switches, and nvidia-smi lists them for every other GPU. A virtual machine does not
		// always see the switches, but the driver does, and NCCL asks it about links that are missing here.
		if h.Switches > 0 || sum > mostLinks {
			gpu.children = nil
		}
		out = append(out, device{g.PCI, gpuClass, g.Path, max(g.Node, -1), gpu})
	}
	for _, d := range h.RDMA {
		if len(d.Ports) == 0 || d.PCI == "" {
			continue
		}
		class := ethernetClass
		if d.Ports[0].Link == "InfiniBand" {
			class = ibClass
		}
		way, node := pathOf(h, d), max(d.Node, -1)
		out, merged = append(out, device{d.PCI, class, way, node, nil}), append(merged, device{firstFunction(d.PCI), class, way, node, nil})
	}
	for _, n := range h.NICs {
		if n.PCI != "" && n.Up {
			out = append(out, device{n.PCI, ethernetClass, n.Path, max(n.Node, -1), nil})
		}
	}
	out = append(out, merged...)
	seen := map[string]bool{} // an RDMA device and the interface beside it are one function
	for _, d := range out {
		for _, bridge := range d.path {
			seen[bridge] = true
		}
	}
	return slices.DeleteFunc(out, func(d device) bool {
		again := seen[d.pci]
		seen[d.pci] = true
		return again || !address.MatchString(d.pci)
	})
}

// firstFunction is the address at which NCCL looks for an RDMA device: it takes the ports and virtual functions of a
// card for one device. An address without a device does no harm.
func firstFunction(pci string) string {
	if i := strings.LastIndexByte(pci, ':'); i >= 0 {
		return pci[:i] + ":00.0"
	}
	return pci
}

// pathOf is the PCI path of an RDMA device: the path of the interface on its function or card.
func pathOf(h topology.Host, d topology.RDMA) []string {
	for _, n := range h.NICs {
		if n.Name == d.NIC {
			return n.Path
		}
	}
	return nil
}

// element is an XML element.
type element struct {
	name       string
	attributes []string // name, value, …
	children   []*element
}

// place puts a device below its bridges, which it makes.
func (e *element) place(d device) {
	for _, bridge := range d.path {
		if address.MatchString(bridge) { // the root, "pci0000:80", is the node itself
			e = e.pci(bridge, bridgeClass)
		}
	}
	e = e.pci(d.pci, d.class)
	if d.inside != nil {
		e.children = append(e.children, d.inside)
	}
}

func (e *element) pci(address, class string) *element {
	for _, c := range e.children {
		if c.name == "pci" && c.attributes[1] == address {
			return c
		}
	}
	c := &element{name: "pci", attributes: []string{"busid", address, "class", class}}
	e.children = append(e.children, c)
	return c
}

// MarshalXML implements xml.Marshaler.
func (e *element) MarshalXML(enc *xml.Encoder, _ xml.StartElement) error {
	start := xml.StartElement{Name: xml.Name{Local: e.name}}
	for i := 0; i+1 < len(e.attributes); i += 2 {
		start.Attr = append(start.Attr, xml.Attr{Name: xml.Name{Local: e.attributes[i]}, Value: e.attributes[i+1]})
	}
	if err := enc.EncodeToken(start); err != nil {
		return err
	}
	for _, c := range e.children {
		if err := enc.Encode(c); err != nil {
			return err
		}
	}
	return enc.EncodeToken(start.End())
}

// mostCPUs bounds the length of a CPU mask.
const mostCPUs = 1 << 13

// mask writes CPUs as the kernel does in a cpumap: 32 to a word, the highest first.
func mask(cpus []int) string {
	var words []uint32
	for _, cpu := range cpus {
		if cpu < 0 || cpu >= mostCPUs {
			continue
		}
		for len(words) <= cpu/32 {
			words = append(words, 0)
		}
		words[cpu/32] |= 1 << (cpu % 32)
	}
	var parts []string
	for _, word := range slices.Backward(words) {
		parts = append(parts, fmt.Sprintf("%08x", word))
	}
	return strings.Join(parts, ",")
}
