package probe

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gorun/topology"
)

// The tests here hold what package probe believes of nvidia-smi against what people have recorded of it in public: which columns
// there are, how words are spelt, in which versions. Each case names where that is to be read; the texts have the form of those
// there, with UUIDs and numbers made up, and a link for every pair of a kind. TestRecordedMatrix has one as it is.

// card is a kind of machine as nvidia-smi topo -m shows it.
type card struct {
	source  string
	gpus    int
	link    func(i, j int) string // between GPUs
	nics    []string              // columns of network cards
	toNIC   func(gpu, nic int) string
	columns string                        // behind those
	tail    func(gpu int) string          // of a GPU's row, below these
	nicRow  func(row, columns int) string // the end of a NIC's row
	spaces  bool                          // in columns of spaces, as terminals show it, instead of tabs
	plain   bool                          // the head is not underlined
	note    string                        // above the head
}

func (c card) text() string {
	var b strings.Builder
	row := func(cells ...string) {
		if c.spaces {
			for i, cell := range cells {
				cells[i] = fmt.Sprintf("%-8s", cell)
			}
			b.WriteString(strings.TrimRight(strings.Join(cells, ""), " ") + "\n")
			return
		}
		b.WriteString(strings.Join(cells, "\t") + "\n")
	}
	b.WriteString(c.note)
	head := []string{""}
	for i := range c.gpus {
		head = append(head, fmt.Sprint("GPU", i))
	}
	head = append(append(head, c.nics...), c.columns)
	if !c.plain {
		head[0], head[len(head)-1] = "\x1b[4m", c.columns+"\x1b[0m"
	}
	row(head...)
	for i := range c.gpus {
		cells := []string{fmt.Sprint("GPU", i)}
		for j := range c.gpus {
			if i == j {
				cells = append(cells, " X ")
			} else {
				cells = append(cells, c.link(i, j))
			}
		}
		for k := range c.nics {
			cells = append(cells, c.toNIC(i, k))
		}
		row(append(cells, c.tail(i))...)
	}
	for k, nic := range c.nics {
		cells := []string{nic}
		for i := range c.gpus {
			cells = append(cells, c.toNIC(i, k))
		}
		for other := range c.nics {
			cells = append(cells, map[bool]string{true: " X ", false: "SYS"}[k == other])
		}
		if c.nicRow != nil {
			cells = append(cells, c.nicRow(k, len(c.nics)))
		}
		row(cells...)
	}
	b.WriteString("\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)\n" +
		"  NV#  = Connection traversing a bonded set of # NVLinks\n")
	if slices.Contains(c.nics, "NIC0") {
		b.WriteString("\nNIC Legend:\n\n")
		for k := range c.nics {
			fmt.Fprintf(&b, "  NIC%d: mlx5_%d\n", k, k)
		}
	}
	return b.String()
}

func nicNames(n int, format string) (names []string) {
	for k := range n {
		names = append(names, fmt.Sprintf(format, k))
	}
	return names
}

func TestRecordedMatrices(t *testing.T) {
	all := func(link string) func(int, int) string { return func(int, int) string { return link } }
	halves := func(gpus int, near, far string) func(int, int) string {
		return func(i, j int) string {
			if i/(gpus/2) == j/(gpus/2) {
				return near
			}
			return far
		}
	}
	sockets := func(gpus int, cpus ...string) func(int) string {
		return func(gpu int) string {
			node := gpu * len(cpus) / gpus
			return fmt.Sprintf("%s\t%d\t\tN/A", cpus[node], node)
		}
	}
	pairs := func(near, far string) func(int, int) string {
		return func(gpu, nic int) string {
			if gpu/2 == nic/2 {
				return near
			}
			return far
		}
	}
	for _, c := range []card{
		{source: "github.com/NVIDIA/nccl/issues/1264: HGX H100, ten NICs, a row of a NIC ends in empty cells", gpus: 8, link: all("NV18"),
			nics: nicNames(10, "NIC%d"), toNIC: pairs("PIX", "SYS"), columns: "CPU Affinity\tNUMA Affinity\tGPU NUMA ID", tail: sockets(8, "0-55,112-167", "56-111,168-223"),
			nicRow: func(int, int) string { return "\t\t\t" }},
		{source: "github.com/sgl-project/sglang/issues/13973: H100, of a terminal", gpus: 8, link: all("NV18"), spaces: true, plain: true,
			nics: nicNames(9, "NIC%d"), toNIC: pairs("PIX", "NODE"), columns: "CPU Affinity    NUMA Affinity   GPU NUMA ID", tail: sockets(8, "0-23,96-119", "24-47,120-143", "48-71,144-167", "72-95,168-191")},
		{source: "github.com/deepseek-ai/DeepEP/issues/145: H100, eighteen NICs, columns shift where names grow longer", gpus: 8, link: all("NV18"), spaces: true, plain: true,
			nics: nicNames(18, "NIC%d"), toNIC: pairs("PXB", "NODE"), columns: " CPU Affinity    NUMA Affinity   GPU NUMA ID", tail: sockets(8, "0-55,112-167", "56-111,168-223")},
		{source: "github.com/NVIDIA/nccl/issues/1505: DGX A100, affinity to four of eight nodes", gpus: 8, link: all("NV12"),
			nics: nicNames(12, "NIC%d"), toNIC: pairs("PXB", "SYS"), columns: "CPU Affinity\tNUMA Affinity\tGPU NUMA ID", tail: sockets(8, "48-63,176-191", "16-31,144-159", "112-127,240-255", "80-95,208-223")},
		{source: "github.com/NVIDIA/nccl/issues/933: A800, no column GPU NUMA ID", gpus: 8, link: all("NV8"), nics: nicNames(9, "NIC%d"), toNIC: pairs("PIX", "NODE"),
			columns: "CPU Affinity\tNUMA Affinity", tail: func(gpu int) string { return fmt.Sprintf("0-47,96-143\t%d", gpu/4) }},
		{source: "github.com/NVIDIA/nccl-tests/issues/78: DGX-2, NICs by their names, no NUMA nodes", gpus: 16, link: all("NV6"), nics: nicNames(10, "mlx5_%d"),
			toNIC: pairs("PIX", "SYS"), columns: "CPU Affinity", tail: func(int) string { return "0-23,48-71" }},
		{source: "github.com/NVIDIA/go-gpuallocator/issues/17: no NVLink, NIC rows end without empty cells", gpus: 8, link: all("SYS"), nics: nicNames(2, "NIC%d"),
			toNIC: pairs("PHB", "SYS"), columns: "CPU Affinity\tNUMA Affinity\tGPU NUMA ID", tail: sockets(8, "0-55,112-167", "56-111,168-223")},
		{source: "github.com/vllm-project/vllm/issues/14537: a note above the matrix, whose head is not underlined", gpus: 8, link: all("NV18"), plain: true,
			nics: nicNames(56, "NIC%d"), toNIC: pairs("PXB", "NODE"), columns: "CPU Affinity\tNUMA Affinity\tGPU NUMA ID", tail: sockets(8, "0-55,112-167", "56-111,168-223"),
			note: "76 NICs found in the topology, only displaying 56 in the matrix.\n"},
		{source: "github.com/rapidsai/dask-cuda/issues/1381: GPUs beside none of the CPUs that the process may use", gpus: 8, spaces: true, plain: true,
			link: func(i, j int) string { return map[bool]string{true: "NV12", false: "NODE"}[i/2 == j/2] },
			nics: nicNames(1, "NIC%d"), toNIC: pairs("NODE", "PHB"), columns: "CPU Affinity    NUMA Affinity   GPU NUMA ID",
			tail: func(gpu int) string {
				return []string{"0-15,56-71      0               N/A", "                1               N/A"}[gpu/4]
			}},
		{source: "github.com/sgl-project/sglang/issues/7888: a virtual machine, GPUs beside both nodes", gpus: 8, link: all("NV18"), spaces: true, plain: true,
			nics: nicNames(8, "NIC%d"), toNIC: pairs("PIX", "PHB"), columns: "CPU Affinity    NUMA Affinity     GPU NUMA ID", tail: func(int) string { return "0-187   0-1      N/A" }},
		{source: "after the same, without NICs: bridges between pairs", gpus: 4, link: halves(4, "NV4", "SYS"), columns: "CPU Affinity\tNUMA Affinity\tGPU NUMA ID", tail: sockets(4, "0-31", "32-63")},
	} {
		gpus := make([]topology.GPU, c.gpus)
		for i := range gpus {
			gpus[i].Index = i
		}
		parseMatrix(c.text(), gpus)
		for i, g := range gpus {
			if len(g.Links) != c.gpus {
				t.Errorf("%s: GPU %d has links %q in\n%s", c.source, i, g.Links, c.text())
				break
			}
			for j, link := range g.Links {
				want := "X"
				if i != j {
					want = c.link(i, j)
				}
				if link != want {
					t.Errorf("%s: from GPU %d to %d by %q, should be %q", c.source, i, j, link, want)
				}
			}
		}
	}
}

// TestRecordedMatrix holds a whole text, as it was recorded.
func TestRecordedMatrix(t *testing.T) {
	const text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tPHB\t0-63\t0\t\tN/A\nGPU1\tPHB\t X \t0-63\t0\t\tN/A\n\nLegend:\n\n" +
		"  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)\n" +
		"  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node\n" +
		"  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)\n" +
		"  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)\n" +
		"  PIX  = Connection traversing at most a single PCIe bridge\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
	gpus := []topology.GPU{{Index: 0}, {Index: 1}}
	parseMatrix(text, gpus)
	if got := [][]string{gpus[0].Links, gpus[1].Links}; !reflect.DeepEqual(got, [][]string{{"X", "PHB"}, {"PHB", "X"}}) {
		t.Errorf("github.com/noonghunna/club-3090/issues/1229: %q", got)
	}
}

func TestRecordedLists(t *testing.T) {
	const gpu = "GPU-7fdaf0a5-0000-4636-915d-000000000000"
	for source, c := range map[string]struct {
		lines []string
		want  []topology.MIG
	}{
		"github.com/DataDog/datadog-agent/pull/33120: driver 535": {
			[]string{"  MIG 1g.10gb     Device  0: (UUID: MIG-feb88891-0000-5fef-9c87-000000000001)", "  MIG 1g.10gb     Device  1: (UUID: MIG-a25704ba-0000-5299-a795-000000000002)"},
			[]topology.MIG{{UUID: "MIG-feb88891-0000-5fef-9c87-000000000001", Profile: "1g.10gb"}, {UUID: "MIG-a25704ba-0000-5299-a795-000000000002", Profile: "1g.10gb"}}},
		"github.com/influxdata/telegraf/issues/5812: the other memory of that size": {
			[]string{"  MIG 1g.20gb     Device  0: (UUID: MIG-ce861fb0-0000-58ce-a9a8-000000000003)"}, []topology.MIG{{UUID: "MIG-ce861fb0-0000-58ce-a9a8-000000000003", Profile: "1g.20gb"}}},
		"NVIDIA's documentation of its GPU Operator, of May 2021: names of slices before driver 470": {
			[]string{"  MIG 1g.5gb Device 0: (UUID: MIG-" + gpu + "/7/0)", "  MIG 1g.5gb Device 1: (UUID: MIG-" + gpu + "/8/0)"},
			[]topology.MIG{{UUID: "MIG-" + gpu + "/7/0", Profile: "1g.5gb"}, {UUID: "MIG-" + gpu + "/8/0", Profile: "1g.5gb"}}},
		"github.com/NVIDIA/nvidia-container-toolkit/issues/203: driver 530": {
			[]string{"  MIG 3g.40gb     Device  0: (UUID: MIG-0929581a-0000-5dec-bf34-000000000004)"}, []topology.MIG{{UUID: "MIG-0929581a-0000-5dec-bf34-000000000004", Profile: "3g.40gb"}}},
		"a name from the MIG User Guide of NVIDIA, of part of a slice, in a list as of driver 530": {
			[]string{"  MIG 1c.3g.20gb  Device  0: (UUID: MIG-0929581a-0000-5dec-bf34-000000000004)"}, []topology.MIG{{UUID: "MIG-0929581a-0000-5dec-bf34-000000000004", Profile: "1c.3g.20gb"}}},
	} {
		gpus := []topology.GPU{{UUID: "GPU-d8594bd4-0000-3595-8355-000000000000"}, {UUID: gpu}, {UUID: "GPU-5e375e7e-0000-455f-8dcd-000000000000"}}
		text := fmt.Sprintf("GPU 0: NVIDIA A100-SXM4-80GB (UUID: %s)\nGPU 1: NVIDIA A100-SXM4-80GB (UUID: %s)\n%s\nGPU 2: NVIDIA A100 80GB PCIe (UUID: %s)\n",
			gpus[0].UUID, gpus[1].UUID, strings.Join(c.lines, "\n"), gpus[2].UUID)
		parseMIG(text, gpus)
		if !reflect.DeepEqual(gpus[1].MIG, c.want) || gpus[0].MIG != nil || gpus[2].MIG != nil {
			t.Errorf("%s: %+v, should be %+v", source, gpus, c.want)
		}
	}
}

// report is the part of nvidia-smi -q around what is read of it.
func report(attached, bus, name, spelling, mode, product, status string) string {
	text := "\n==============NVSMI LOG==============\n\nTimestamp                                 : Thu Dec 19 07:31:27 2024\n" +
		"Driver Version                            : 535.216.01\n\n" + attached + "                             : 1\nGPU " + bus + "\n" +
		"    Product Name                          : " + name + "\n    MIG Mode\n        Current                           : Disabled\n" +
		"    GPU Operation Mode\n        Current                           : N/A\n    GSP Firmware Version                  : N/A\n" +
		"    GPU Virtualization Mode\n        Virtualization " + spelling + "               : " + mode + "\n        Host VGPU Mode                    : N/A\n"
	if product != "" {
		text += "    " + product + "\n        Product Name                      : NVIDIA Virtual Compute Server\n        License Status                    : " + status + "\n"
	}
	return text + "    GPU Reset Status\n        Reset Required                    : N/A\n    PCI\n        Bus                               : 0x02\n" +
		"        Bus Id                            : " + bus + "\n    Processes                             : None\n"
}

func TestRecordedReports(t *testing.T) {
	const vgpu = "vGPU Software Licensed Product"
	for _, c := range []struct {
		source, attached, bus, pci, name, mode, product, status string
		want                                                    topology.GPU
	}{
		{"a public guide to vGPUs under vSphere with Tanzu, driver 535", "Attached vGPUs", "00000000:02:00.0", "0000:02:00.0", "GRID V100D-8C", "VGPU", vgpu,
			"Licensed (Expiry: 2025-3-19 7:29:4 GMT)", topology.GPU{Mode: "vgpu", Profile: "8C", Licence: "Licensed (Expiry: 2025-3-19 7:29:4 GMT)"}},
		{"github.com/NVIDIA/gpu-operator/issues/628", "Attached GPUs ", "00000000:02:01.0", "0000:02:01.0", "NVIDIA A100-3-20C", "VGPU", vgpu,
			"Unlicensed (Restricted)", topology.GPU{Mode: "vgpu", Profile: "3-20C", Licence: "Unlicensed (Restricted)"}},
		{"github.com/NVIDIA/gpu-operator/issues/220: vGPU on vSphere, driver 460", "Attached GPUs ", "00000000:02:00.0", "0000:02:00.0", "GRID T4-16C", "VGPU", vgpu,
			"Unlicensed", topology.GPU{Mode: "vgpu", Profile: "16C", Licence: "Unlicensed"}},
		{"a log of a Q profile before it asked for a licence", "Attached GPUs ", "00000000:00:10.0", "0000:00:10.0", "NVIDIA RTXA6000-24Q", "VGPU", vgpu,
			"Unlicensed (Unrestricted)", topology.GPU{Mode: "vgpu", Profile: "24Q", Licence: "Unlicensed (Unrestricted)"}},
		{"a whole card in a VM", "Attached GPUs ", "00000000:01:00.0", "0000:01:00.0", "NVIDIA RTX 4000 Ada Generation", "Pass-Through", "", "", topology.GPU{Mode: "passthrough"}},
		{"a whole card of a machine", "Attached GPUs ", "00000000:01:00.0", "0000:01:00.0", "NVIDIA GeForce RTX 4090", "None", "", "", topology.GPU{Mode: "none"}},
		{"github.com/bigstack-oss/cubecos/issues/312: a second PCI domain", "Attached GPUs ", "00000001:C8:00.0", "0001:c8:00.0", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "None", "", "", topology.GPU{Mode: "none"}},
		{"Intel VMD, whose domains have five digits", "Attached GPUs ", "00010000:E1:00.0", "10000:e1:00.0", "NVIDIA L4", "None", "", "", topology.GPU{Mode: "none"}},
	} {
		for _, spelling := range []string{"Mode", "mode"} { // the second one by driver 396: github.com/NVIDIA/nvidia-docker/issues/954
			gpus := parseQuery([]byte(fmt.Sprintf("0, GPU-1, %s, %s, 8192\n", c.name, c.bus)))
			parseModes(report(c.attached, c.bus, c.name, spelling, c.mode, c.product, c.status), gpus)
			if len(gpus) != 1 || gpus[0].PCI != c.pci || gpus[0].Mode != c.want.Mode || gpus[0].Profile != c.want.Profile || gpus[0].Licence != c.want.Licence {
				t.Errorf("%s: %+v, should be at %s and %+v", c.source, gpus, c.pci, c.want)
			}
		}
	}
}
