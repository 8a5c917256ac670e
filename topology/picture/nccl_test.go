package picture_test

import (
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

// Limits of NCCL.
const (
	mostText       = 254 // characters of a name or a value
	mostAttributes = 16
	mostChildren   = 640
	mostElements   = 256 // including the ones that it adds itself
)

// inside lists which elements NCCL reads in which.
var inside = map[string][]string{"": {"system"}, "system": {"cpu"}, "cpu": {"pci", "nic"}, "pci": {"pci", "gpu", "nic", "pcilink"},
	"gpu": {"nvlink", "c2c"}, "nic": {"net"}}

// tag is an element as NCCL has it.
type tag struct {
	name     string
	parent   *tag
	children []*tag
	has      map[string]string
	keep     bool // it is, or leads to, a device that is used
}

// all returns an element and everything in it.
func (e *tag) all() []*tag {
	all := []*tag{e}
	for _, c := range e.children {
		all = append(all, c.all()...)
	}
	return all
}

// find returns the element of a name with a value of an attribute, nil if there is none.
func (e *tag) find(name, attribute, value string) *tag {
	all := e.all()
	if at := slices.IndexFunc(all, func(c *tag) bool { return c.name == name && c.has[attribute] == value }); at >= 0 {
		return all[at]
	}
	return nil
}

// add puts a new element into another one.
func (e *tag) add(name string) *tag {
	c := &tag{name: name, parent: e, has: map[string]string{}}
	e.children = append(e.children, c)
	return c
}

// scanner reads a file a character at a time, as NCCL does: it knows neither declarations nor entities, nor any white
// space but a blank before an attribute, and blanks and ends of lines between elements.
type scanner struct{ rest string }

func (s *scanner) word(ends string) (word string, end byte, err error) {
	at := strings.IndexAny(s.rest, ends)
	if at < 0 {
		return "", 0, errors.New("the file ends in the middle")
	}
	word, end, s.rest = s.rest[:at], s.rest[at], s.rest[at+1:]
	if len(word) > mostText {
		return "", 0, fmt.Errorf("%.20s… is too long", word)
	}
	return word, end, nil
}

// next reads <name a="b" …>, <name …/> or </name>.
func (s *scanner) next() (name string, has map[string]string, opens, closes bool, err error) {
	if s.rest[0] != '<' {
		return "", nil, false, false, fmt.Errorf("expected <, got %.9q", s.rest)
	}
	s.rest = s.rest[1:]
	if s.rest, closes = strings.CutPrefix(s.rest, "/"); closes {
		name, end, err := s.word(" >/\n\r=")
		if err == nil && end != '>' {
			err = fmt.Errorf("%q behind </%s", end, name)
		}
		return name, nil, false, true, err
	}
	name, end, err := s.word(" >/\n\r=")
	has = map[string]string{}
	for end == ' ' && err == nil {
		var key string
		if key, end, err = s.word(" >/\n\r="); err != nil {
			break
		}
		if end != '=' || s.rest == "" || s.rest[0] != '"' && s.rest[0] != '\'' {
			return name, nil, false, false, fmt.Errorf("attribute %q of %s has no value in quotes", key, name)
		}
		quote := s.rest[:1]
		s.rest = s.rest[1:]
		if has[key], _, err = s.word(quote); err == nil && s.rest == "" {
			err = errors.New("the file ends in the middle")
		}
		if err != nil {
			break
		}
		end, s.rest = s.rest[0], s.rest[1:]
	}
	if err == nil && end == '/' {
		closes = true
		_, end, err = s.word(">")
	}
	switch {
	case err != nil:
	case end != '>':
		err = fmt.Errorf("expected >, got %q in %s", end, name)
	case len(has) > mostAttributes:
		err = fmt.Errorf("%s has %d attributes", name, len(has))
	}
	return name, has, true, closes, err
}

// load reads a file; what NCCL would pass over is an error.
func load(text string) (system *tag, err error) {
	top := &tag{has: map[string]string{}}
	at := top
	for s := (scanner{text}); ; {
		if s.rest = strings.TrimLeft(s.rest, " \n\r"); s.rest == "" {
			break
		}
		name, has, opens, closes, err := s.next()
		if err != nil {
			return nil, err
		}
		if opens {
			if !slices.Contains(inside[at.name], name) {
				return nil, fmt.Errorf("NCCL ignores a %s in a %s", name, at.name)
			}
			at = at.add(name)
			at.has = has
		}
		if closes {
			if at.name != name {
				return nil, fmt.Errorf("</%s> for <%s>", name, at.name)
			}
			at = at.parent
		}
	}
	switch {
	case at != top:
		return nil, fmt.Errorf("%s does not end", at.name)
	case len(top.children) != 1:
		return nil, fmt.Errorf("%d systems", len(top.children))
	case top.children[0].has["version"] != "1":
		return nil, fmt.Errorf("version %q", top.children[0].has["version"])
	}
	return top.children[0], nil
}

// fill adds what NCCL learns of a PCI function and of all above it from the machine.
func fill(pci *tag) {
	for e := pci; e != nil; e = e.parent {
		e.keep = true
		learns := map[string][]string{"pci": {"link_speed", "link_width", "class"}, "cpu": {"arch", "vendor", "familyid", "modelid"}}
		for _, attribute := range learns[e.name] {
			if e.has[attribute] == "" {
				e.has[attribute] = "0"
			}
		}
	}
}

// net is a device that one of NCCL's networks uses: a socket's interface or an RDMA device.
type net struct {
	name, pci string
	node      int
}

// use has NCCL look for devices in the file, and forget what leads to none of them.
func (e *tag) use(gpus []topology.GPU, nets []net) error {
	for _, g := range gpus {
		pci := e.find("pci", "busid", g.PCI)
		if pci == nil {
			return fmt.Errorf("GPU %s is not there", g.PCI)
		}
		fill(pci)
		at := slices.IndexFunc(pci.children, func(c *tag) bool { return c.name == "gpu" })
		if at < 0 {
			return fmt.Errorf("no gpu in %s", g.PCI)
		}
		gpu := pci.children[at]
		if gpu.has["dev"] != strconv.Itoa(g.Index) {
			return fmt.Errorf("GPU %s is number %s", g.PCI, gpu.has["dev"])
		}
		gpu.keep, gpu.has["sm"], gpu.has["rank"], gpu.has["gdr"] = true, "80", "0", "1"
	}
	for i, n := range nets {
		found := e.find("net", "name", n.name)
		if found == nil { // if it is there, NCCL adds nothing to it, nor to what is above
			above := e.find("pci", "busid", n.pci)
			switch {
			case n.pci == "" && len(e.children) == 0:
				continue // NCCL makes a node of its own
			case n.pci == "": // not on PCI: it belongs to the first node, of which NCCL asks nothing
				above = e.children[0]
			case above == nil:
				return fmt.Errorf("%s is not there: NCCL looks for %s", n.name, n.pci)
			default:
				fill(above)
			}
			found = above.add("nic").add("net")
			found.has["name"] = n.name
		}
		for _, attribute := range []string{"dev", "rail", "plane"} {
			found.has[attribute] = strconv.Itoa(i)
		}
		for up := found; up != nil; up = up.parent {
			up.keep = true
		}
	}
	for _, c := range e.all() {
		c.children = slices.DeleteFunc(c.children, func(c *tag) bool {
			return !c.keep && slices.Contains([]string{"cpu", "pci", "nic", "net"}, c.name)
		})
	}
	return nil
}

var (
	busID    = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`) // NCCL compares them as text
	affinity = regexp.MustCompile(`^[0-9a-f]{1,8}(,[0-9a-f]{8})*$`)
	integer  = regexp.MustCompile(`^-?[0-9]+$`)
)

// needs are attributes without which NCCL gives up, by element.
var needs = map[string][]string{"cpu": {"numaid", "arch"}, "pci": {"busid", "class", "link_width", "link_speed"}, "gpu": {"dev", "rank", "sm", "gdr"},
	"net": {"dev", "rail", "plane"}, "nvlink": {"count", "tclass", "target"}}

// build is NCCL making its graph of what is left.
func (e *tag) build() error {
	all := e.all()
	if len(all) > mostElements {
		return fmt.Errorf("%d elements", len(all))
	}
	functions := map[string]bool{}
	for _, c := range all {
		if len(c.children) > mostChildren {
			return fmt.Errorf("%d elements in a %s", len(c.children), c.name)
		}
		wants := needs[c.name]
		if c.name == "cpu" && c.has["arch"] == "x86_64" {
			wants = append(slices.Clone(wants), "vendor", "familyid", "modelid")
		}
		for _, attribute := range wants {
			if c.has[attribute] == "" {
				return fmt.Errorf("a %s without %s: %v", c.name, attribute, c.has)
			}
		}
		for _, attribute := range []string{"numaid", "dev", "count"} {
			if v := c.has[attribute]; v != "" && !integer.MatchString(v) {
				return fmt.Errorf("%s of a %s is %q", attribute, c.name, v)
			}
		}
		if v := c.has["affinity"]; v != "" && !affinity.MatchString(v) {
			return fmt.Errorf("affinity %q", v)
		}
		for _, attribute := range []string{"busid", "target"} {
			if v, ok := c.has[attribute]; ok && !busID.MatchString(v) {
				return fmt.Errorf("%s %q of a %s", attribute, v, c.name)
			}
		}
		if id := c.has["busid"]; c.name == "pci" && functions[id] {
			return fmt.Errorf("%s is there twice", id)
		} else if c.name == "pci" {
			functions[id] = true
		}
	}
	return nil
}

// reads is what NCCL does with a file where a job uses some devices: it returns an error as NCCL would, and if it has
// not found each of them on the node that the host is known to have it on.
func reads(text string, gpus []topology.GPU, nets []net) error {
	system, err := load(text)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if err := system.use(gpus, nets); err != nil {
		return err
	}
	if err := system.build(); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	on := func(e *tag) string {
		for ; e != nil; e = e.parent {
			if e.name == "cpu" {
				return e.has["numaid"]
			}
		}
		return ""
	}
	for _, g := range gpus {
		if node := on(system.find("pci", "busid", g.PCI)); node != strconv.Itoa(max(g.Node, -1)) {
			return fmt.Errorf("GPU %s is on node %s", g.PCI, node)
		}
	}
	for _, n := range nets {
		if node := on(system.find("net", "name", n.name)); n.pci != "" && node != strconv.Itoa(max(n.node, -1)) {
			return fmt.Errorf("%s is on node %s", n.name, node)
		}
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

// TestNCCLReads holds the files of all machines there are here to NCCL's rules, whatever a job uses of their devices.
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
		jobs := []struct {
			gpus []topology.GPU
			nets []net
		}{{h.GPUs, sockets}, {h.GPUs, rdma}, {nil, sockets}, {h.GPUs, nil}}
		for i := range h.GPUs {
			jobs = append(jobs, jobs[0])
			jobs[len(jobs)-1].gpus = h.GPUs[i : i+1]
		}
		for i := range sockets {
			jobs = append(jobs, jobs[0])
			jobs[len(jobs)-1].nets = sockets[i : i+1]
		}
		for _, job := range jobs {
			if err := reads(string(text), job.gpus, job.nets); err != nil {
				t.Errorf("%s, %d GPUs and %v: %v in\n%s", name, len(job.gpus), job.nets, err, text)
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

// TestNCCLRefuses: what the test above holds files to can fail.
func TestNCCLRefuses(t *testing.T) {
	h := probed(t, "vsphere8")
	text, err := picture.NCCL(h)
	must.Do(t, err)
	sockets, _ := netsOf(h)
	nic := sockets[0].pci
	for _, c := range []struct{ name, old, new, want string }{
		{"a net", `busid="` + nic + `" class="0x020000">`, `busid="` + nic + `" class="0x020000"><nic><net name="` + sockets[0].name + `" dev="0"/></nic>`, "without link_width"},
		{"a tab", "\n  <cpu", "\n\t<cpu", "expected <"},
		{"a declaration", "<system", "<?xml version=\"1.0\"?>\n<system", "expected >"},
		{"an attribute on a line of its own", " class=", "\nclass=", "expected >"},
		{"no quotes", `version="1"`, `version=1`, "in quotes"},
		{"another version", `version="1"`, `version="2"`, `version "2"`},
		{"a long value", `numaid="0"`, `numaid="0" name="` + strings.Repeat("x", 300) + `"`, "too long"},
		{"many attributes", `numaid="0"`, `numaid="0"` + manyAttributes(), "attributes"},
		{"an end missing", "</system>", "", "does not end"},
		{"another element", `<cpu numaid="0"`, `<socket></socket><cpu numaid="0"`, "ignores"},
		{"capital letters", nic, strings.ToUpper(strings.Replace(nic, "0000", "000A", 1)), "is not there"},
		{"another node", `numaid="0"`, `numaid="7"`, "is on node 7"},
	} {
		broken := strings.Replace(string(text), c.old, c.new, 1)
		if broken == string(text) {
			t.Errorf("%s: no %q in\n%s", c.name, c.old, text)
		}
		if err := reads(broken, h.GPUs, sockets); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, should be %q", c.name, err, c.want)
		}
	}
}

func manyAttributes() (list string) {
	for i := range 20 {
		list += fmt.Sprintf(` a%d="1"`, i)
	}
	return list
}
