package probe

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"gorun/topology"
)

// The tests here hold what package probe believes of nvidia-smi against what people have recorded of it in public: which columns
// there are, how words are spelt, in which versions. Each case names where that is to be read; the texts have the form of those
// there, with UUIDs and numbers made up, and two GPUs of eight.

func TestRecordedMatrices(t *testing.T) {
	const legend = "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)\n" +
		"  NV#  = Connection traversing a bonded set of # NVLinks\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
	for source, c := range map[string]struct{ link, text string }{
		"github.com/NVIDIA/nccl/issues/1264: HGX H100, a row of a NIC ends in empty cells": {"NV18",
			"\x1b[4m\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \tNV18\tPIX\t0-55,112-167\t0\t\tN/A\n" +
				"GPU1\tNV18\t X \tSYS\t56-111,168-223\t1\t\tN/A\nNIC0\tPIX\tSYS\t X \t\t\t\n"},
		"github.com/sgl-project/sglang/issues/13973: H100, of a terminal": {"NV18",
			"        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID\nGPU0     X      NV18    PIX     0-23,96-119     0               N/A\n" +
				"GPU1    NV18     X      NODE    24-47,120-143   1               N/A\nNIC0    PIX     NODE     X\n"},
		"github.com/NVIDIA/nccl/issues/933: A800, no column GPU NUMA ID": {"NV8",
			"\x1b[4m\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m\nGPU0\t X \tNV8\tPIX\t0-47,96-143\t0\nGPU1\tNV8\t X \tNODE\t0-47,96-143\t0\nNIC0\tPIX\tNODE\t X \n"},
		"github.com/NVIDIA/nccl-tests/issues/78: DGX-2, NICs by their names, no NUMA nodes": {"NV6",
			"\x1b[4m\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\x1b[0m\nGPU0\t X \tNV6\tPIX\t0-23,48-71\nGPU1\tNV6\t X \tSYS\t0-23,48-71\nmlx5_0\tPIX\tSYS\t X \n"},
		"github.com/vllm-project/vllm/issues/14537: a note above the matrix, whose head is not underlined": {"NV18",
			"76 NICs found in the topology, only displaying 56 in the matrix.\n\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n" +
				"GPU0\t X \tNV18\tPXB\t0-55,112-167\t0\t\tN/A\nGPU1\tNV18\t X \tNODE\t56-111,168-223\t1\t\tN/A\nNIC0\tPXB\tNODE\t X \n"},
		"github.com/rapidsai/dask-cuda/issues/1381: a GPU beside none of the CPUs that the process may use": {"NODE",
			"        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID\nGPU0     X      NODE    NODE    0-15,56-71      0               N/A\n" +
				"GPU1    NODE     X      PHB                     1               N/A\nNIC0    NODE    PHB      X\n"},
		"github.com/sgl-project/sglang/issues/7888: a virtual machine, GPUs beside both nodes, and no NIC": {"PHB",
			"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tPHB\t0-187\t0-1\t\tN/A\nGPU1\tPHB\t X \t0-187\t0-1\t\tN/A\n"},
	} {
		gpus := []topology.GPU{{Index: 0}, {Index: 1}}
		parseMatrix(c.text+legend, gpus)
		if got := [][]string{gpus[0].Links, gpus[1].Links}; !reflect.DeepEqual(got, [][]string{{"X", c.link}, {c.link, "X"}}) {
			t.Errorf("%s: %q", source, got)
		}
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
			noteModes(report(c.attached, c.bus, c.name, spelling, c.mode, c.product, c.status), gpus)
			if len(gpus) != 1 || gpus[0].PCI != c.pci || gpus[0].Mode != c.want.Mode || gpus[0].Profile != c.want.Profile || gpus[0].Licence != c.want.Licence {
				t.Errorf("%s: %+v, should be at %s and %+v", c.source, gpus, c.pci, c.want)
			}
		}
	}
}
