package picture_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/topology"
	"gorun/topology/picture"
)

// What NCCL 2.30 reads is written down here from its sources (src/graph/xml.h, xml.cc and topo.cc, Apache-2.0), in
// other words: no machine that runs these tests has a GPU, without which NCCL does not look at the file at all. NCCL's
// own reader and builder of the graph, as they are in RCCL 5.4.3 (NCCL 2.13 but for the version that a file has to
// have), were compiled by themselves once: they read the files in testdata, and found as many GPUs, NVLinks and network
// devices as there are.

// readable is what NCCL's own reader takes. It knows neither declarations nor entities, nor any white space but a blank
// before an attribute, and blanks and ends of lines between elements. A value may have 254 characters.
var readable = regexp.MustCompile(`^(<[a-z]+( [a-z_]+="[^"&]{0,254}")*/?>|</[a-z]+>|[ \n])*$`)

// Limits of NCCL.
const (
	mostAttributes = 16
	mostChildren   = 640
	mostElements   = 256 // including the ones that it adds itself
)

// inside lists which elements NCCL reads in which.
var inside = map[string][]string{"": {"system"}, "system": {"cpu"}, "cpu": {"pci", "nic"}, "pci": {"pci", "gpu", "nic", "pcilink"},
	"gpu": {"nvlink", "c2c"}}

// rules are the attributes without which NCCL gives up, and the form of others. NCCL adds what else it needs of a device
// that it uses and of all above it, unless the file has a <net>.
var rules = map[string]map[string]*regexp.Regexp{"system": {"version": regexp.MustCompile(`^1$`)}, "cpu": {"numaid": integer}, "pci": {"busid": busID},
	"gpu": {"dev": integer}, "nvlink": {"count": integer, "tclass": regexp.MustCompile(`.`), "target": busID}}

var (
	busID    = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`) // NCCL compares them as text
	affinity = regexp.MustCompile(`^([0-9a-f]{1,8}(,[0-9a-f]{8})*)?$`)
	integer  = regexp.MustCompile(`^-?[0-9]+$`)
)

// tag is an element as NCCL has it.
type tag struct {
	XMLName    xml.Name
	Attributes []xml.Attr `xml:",any,attr"`
	Children   []*tag     `xml:",any"`
}

func (e *tag) has(attribute string) string {
	for _, a := range e.Attributes {
		if a.Name.Local == attribute {
			return a.Value
		}
	}
	return ""
}

// net is a device that one of NCCL's networks uses: a socket's interface or an RDMA device.
type net struct {
	name, pci string
	node      int
}

// reads is what NCCL does with a file on a machine with these devices: it returns an error as NCCL would, and if it has
// not found each of them on the node that the host is known to have it on.
func reads(text string, gpus []topology.GPU, nets []net) error {
	if !readable.MatchString(text) {
		return errors.New("NCCL cannot read it")
	}
	var system tag
	if err := xml.Unmarshal([]byte(text), &system); err != nil {
		return err
	}
	elements, nodes, numbers := 0, map[string]string{}, map[string]string{} // by PCI address
	var visit func(e *tag, parent, node, pci string) error
	visit = func(e *tag, parent, node, pci string) error {
		name := e.XMLName.Local
		if !slices.Contains(inside[parent], name) || len(e.Children) > mostChildren || len(e.Attributes) > mostAttributes || !affinity.MatchString(e.has("affinity")) {
			return fmt.Errorf("NCCL does not read a %s in a %s with %d elements: %v", name, parent, len(e.Children), e.Attributes)
		}
		for attribute, form := range rules[name] {
			if !form.MatchString(e.has(attribute)) {
				return fmt.Errorf("%s of a %s is %q", attribute, name, e.has(attribute))
			}
		}
		switch name {
		case "cpu":
			node = e.has("numaid")
		case "pci":
			pci = e.has("busid")
			if _, twice := nodes[pci]; twice {
				return fmt.Errorf("%s is there twice", pci)
			}
			nodes[pci] = node
		case "gpu":
			numbers[pci] = e.has("dev")
		}
		elements++
		for _, c := range e.Children {
			if err := visit(c, name, node, pci); err != nil {
				return err
			}
		}
		return nil
	}
	if err := visit(&system, "", "", ""); err != nil {
		return err
	}
	for _, g := range gpus {
		if numbers[g.PCI] != strconv.Itoa(g.Index) || nodes[g.PCI] != strconv.Itoa(max(g.Node, -1)) {
			return fmt.Errorf("GPU %s is number %q on node %q", g.PCI, numbers[g.PCI], nodes[g.PCI])
		}
	}
	for _, n := range nets {
		elements += 2 // <nic> and <net>
		switch {
		case n.pci != "" && nodes[n.pci] != strconv.Itoa(max(n.node, -1)):
			return fmt.Errorf("%s is on node %q", n.name, nodes[n.pci])
		case n.pci == "" && len(system.Children) > 0: // it belongs to the first node, of which NCCL asks nothing
			for _, attribute := range []string{"arch", "vendor", "familyid", "modelid"} {
				if system.Children[0].has(attribute) == "" {
					return fmt.Errorf("the first node of %s has no %s", n.name, attribute)
				}
			}
		}
	}
	if elements > mostElements {
		return fmt.Errorf("%d elements", elements)
	}
	return nil
}

// netsOf are what NCCL has of a host's sockets, and of its RDMA devices, which it merges to the first function of a
// card.
func netsOf(h topology.Host) (sockets, rdma []net) {
	for _, n := range h.NICs {
		if n.Up {
			sockets = append(sockets, net{n.Name, n.PCI, n.Node})
		}
	}
	for _, d := range h.RDMA {
		if d.PCI != "" && len(d.Ports) > 0 {
			rdma = append(rdma, net{d.Name, d.PCI[:len(d.PCI)-4] + "00.0", d.Node})
		}
	}
	return sockets, rdma
}

// TestNCCLReads holds the files of all machines there are here to NCCL's rules.
func TestNCCLReads(t *testing.T) {
	trees, err := filepath.Glob("../probe/testdata/*.txtar")
	if err != nil || len(trees) < 8 {
		t.Fatal(trees, err)
	}
	gpus, nets := 0, 0
	for _, tree := range trees {
		name := strings.TrimSuffix(filepath.Base(tree), ".txtar")
		h := probed(t, name)
		text, err := picture.NCCL(h)
		must.Do(t, err)
		sockets, rdma := netsOf(h)
		for _, used := range [][]net{sockets, rdma} {
			if err := reads(string(text), h.GPUs, used); err != nil {
				t.Errorf("%s, %d GPUs and %v: %v in\n%s", name, len(h.GPUs), used, err, text)
			}
		}
		gpus, nets = gpus+len(h.GPUs), nets+len(sockets)+len(rdma)
	}
	if gpus < 10 || nets < 10 {
		t.Errorf("%d GPUs and %d networks on %d machines", gpus, nets, len(trees))
	}
}

// TestNCCLOdd: what hosts have that NCCL's file has no room or no words for is left to NCCL.
func TestNCCLOdd(t *testing.T) {
	many := make([]int, 2000)
	for i := range many {
		many[i] = i
	}
	h := topology.Host{Arch: "amd64", Nodes: []topology.Node{{ID: 0, CPUs: many}}, Processor: topology.Processor{Vendor: `<"&>`, Family: 6, Model: 1}}
	h.NICs = []topology.NIC{{Name: "odd", PCI: "bus<1>", Up: true}}
	for i := range 3 {
		h.GPUs = append(h.GPUs, topology.GPU{Index: i, PCI: fmt.Sprintf("0000:0%d:00.0", i+1), Links: []string{"NV12", "NV12", "NV12"}})
	}
	text, err := picture.NCCL(h)
	must.Do(t, err)
	if err := reads(string(text), h.GPUs, nil); err != nil {
		t.Errorf("%v in\n%s", err, text)
	}
	for _, word := range []string{"affinity", "vendor", "nvlink", "odd", "bus"} {
		if strings.Contains(strings.ReplaceAll(string(text), "busid", ""), word) {
			t.Errorf("%s in\n%s", word, text)
		}
	}
	h.GPUs = h.GPUs[:2] // 12 links of each, which there may be
	if text, _ = picture.NCCL(h); !strings.Contains(string(text), `count="12"`) {
		t.Errorf("no links in\n%s", text)
	}
}
