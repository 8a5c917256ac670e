package doctor_test

import (
	"reflect"
	"strings"
	"testing"

	"gorun/topology"
	"gorun/topology/doctor"
)

// report is an excerpt of the output of nvidia-smi -q for an A100 with driver 555.
const report = `
==============NVSMI LOG==============

Timestamp                                 : Mon Jul 22 09:11:27 2024
Driver Version                            : 555.42.02
CUDA Version                              : 12.5

Attached GPUs                             : 2
GPU 00000000:68:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    Persistence Mode                      : Enabled
    Addressing Mode                       : None
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    GPU Reset Status
        Reset Required                    : No
        Drain and Reset Recommended       : No
    Clocks Event Reasons
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
    Compute Mode                          : Default
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 0
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 353
            DRAM Uncorrectable            : 0
        Aggregate
            SRAM Uncorrectable Parity     : 7
            DRAM Uncorrectable            : 7
            SRAM Threshold Exceeded       : No
        Aggregate Uncorrectable SRAM Sources
            SRAM L2                       : 7
    Retired Pages
        Single Bit ECC                    : N/A
        Double Bit ECC                    : N/A
        Pending Page Blacklist            : N/A
    Remapped Rows
        Correctable Error                 : 1
        Uncorrectable Error               : 0
        Pending                           : No
        Remapping Failure Occurred        : No
        Bank Remap Availability Histogram
            Max                           : 639 bank(s)
    Fabric
        State                             : N/A
        Status                            : N/A
    Processes                             : None

`

func change(old, to string) string { return strings.Replace(report, old, to, 1) }

func TestParseGPUStates(t *testing.T) {
	well := doctor.GPUState{Persistence: "Enabled", Compute: "Default", MIG: "Disabled", ECC: "Enabled", ECCNext: "Enabled"}
	with := func(edit func(*doctor.GPUState)) doctor.GPUState {
		state := well
		edit(&state)
		return state
	}
	for _, c := range []struct {
		about, report string
		want          doctor.GPUState
	}{
		{"an A100", report, well},
		{"without persistence", change("Persistence Mode                      : Enabled", "Persistence Mode                      : Disabled"),
			with(func(g *doctor.GPUState) { g.Persistence = "Disabled" })},
		{"a row to be replaced", change("Pending                           : No", "Pending                           : Yes"), with(func(g *doctor.GPUState) { g.Reset = true })},
		{"a reset is asked for", change("Reset Required                    : No", "Reset Required                    : Yes"), with(func(g *doctor.GPUState) { g.Reset = true })},
		{"no rows left", change("Occurred        : No", "Occurred        : Yes"), with(func(g *doctor.GPUState) { g.Worn = true })},
		{"errors of two kinds", strings.Replace(change("Uncorrectable SEC-DED    : 0", "Uncorrectable SEC-DED    : 2"), "DRAM Uncorrectable            : 0", "DRAM Uncorrectable            : 3", 1),
			with(func(g *doctor.GPUState) { g.Uncorrected = 5 })},
		{"a driver that sums up", change("SRAM Uncorrectable Parity     : 0\n", "SRAM Uncorrectable            : 4\n"), with(func(g *doctor.GPUState) { g.Uncorrected = 4 })},
		{"errors of a part (MIG), which are the GPU's", change("    Compute Mode ", "    MIG Devices\n        MIG Device\n            Index : 0\n            ECC Errors\n                Volatile\n                    SRAM Uncorrectable : 9\n    Compute Mode "), well},
		{"a GPU without ECC", "GPU 00000000:01:00.0\n    Persistence Mode : Disabled\n    Compute Mode : Exclusive_Process\n    Ecc Mode\n        Current : N/A\n        Pending : N/A\n",
			doctor.GPUState{Persistence: "Disabled", Compute: "Exclusive_Process"}},
		{"a V100 by an old driver", "GPU 00000000:0A:00.0\n    Ecc Mode\n        Current                     : Enabled\n        Pending                     : Disabled\n    ECC Errors\n        Volatile\n            Single Bit\n" +
			"                Device Memory       : 8\n                Total               : 8\n            Double Bit\n                Device Memory       : 1\n                Total               : 1\n" +
			"        Aggregate\n            Double Bit\n                Total               : 6\n    Retired Pages\n        Single Bit ECC              : 0\n        Double Bit ECC              : 1\n        Pending                     : Yes\n",
			doctor.GPUState{ECC: "Enabled", ECCNext: "Disabled", Uncorrected: 1, Reset: true}},
		{"a GPU on NVSwitches that wait for their manager", "GPU 00000000:0A:00.0\n    Fabric\n        State : In Progress\n        Status : N/A\n", doctor.GPUState{Fabric: "In Progress"}},
		{"a GPU that has joined its NVSwitches", "GPU 00000000:0A:00.0\n    Fabric\n        State : Completed\n        Status : Success\n", doctor.GPUState{Fabric: "Success"}},
		{"a GPU that its NVSwitches refuse", "GPU 00000000:0A:00.0\n    Fabric\n        State : Completed\n        Status : Insufficient Resources\n", doctor.GPUState{Fabric: "Insufficient Resources"}},
	} {
		if got := doctor.ParseGPUStates(c.report); !reflect.DeepEqual(got, []doctor.GPUState{c.want}) {
			t.Errorf("%s: %+v, want %+v", c.about, got, c.want)
		}
	}
	if got := doctor.ParseGPUStates("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"); got != nil {
		t.Errorf("no driver: %+v", got)
	}
}

func TestParsePeers(t *testing.T) {
	for _, c := range []struct {
		source, matrix string
		want           doctor.Peers
	}{
		{"github.com/noonghunna/club-3090/issues/1229", " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  GNS  = GPU not supported\n",
			doctor.Peers{Pairs: 1, Refused: map[string]int{"GNS": 1}}},
		{"four GPUs in pairs, with an underlined head", "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\x1b[0m\n GPU0\tX\tOK\tCNS\tCNS\n GPU1\tOK\tX\tCNS\tNS\n GPU2\tCNS\tCNS\tX\tOK\n GPU3\tCNS\tNS\tOK\tX\n",
			doctor.Peers{Pairs: 6, Refused: map[string]int{"CNS": 3, "NS": 1}}},
		{"one GPU", " \tGPU0\t\n GPU0\tX\t\n", doctor.Peers{Refused: map[string]int{}}},
		{"no answer", "", doctor.Peers{Refused: map[string]int{}}},
	} {
		if got := doctor.ParsePeers(c.matrix); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.source, got, c.want)
		}
	}
}

// TestGPUStates: each finding names the GPUs, and the worst of their memory comes alone.
func TestGPUStates(t *testing.T) {
	well := doctor.GPUState{Persistence: "Enabled", Compute: "Default", MIG: "Disabled", ECC: "Enabled", ECCNext: "Enabled", Fabric: "Success"}
	for _, c := range []struct {
		check  string
		sicken func(*doctor.GPUState)
		status doctor.Status
		text   string
		fix    string
	}{
		{"GPU persistence", func(*doctor.GPUState) {}, doctor.Pass, "on", ""},
		{"GPU persistence", func(g *doctor.GPUState) { g.Persistence = "Disabled" }, doctor.Warn, "off on GPU 1: ", "nvidia-smi -pm 1"},
		{"GPU ECC", func(*doctor.GPUState) {}, doctor.Pass, "on, and all errors were corrected", ""},
		{"GPU ECC", func(g *doctor.GPUState) { g.ECC, g.ECCNext = "Disabled", "Disabled" }, doctor.Warn, "off on GPU 1: ", "nvidia-smi -i 1 -e 1"},
		{"GPU ECC", func(g *doctor.GPUState) { g.ECC = "Disabled" }, doctor.Warn, "on or off on GPU 1", "--gpu-reset -i 1"},
		{"GPU ECC", func(g *doctor.GPUState) { g.Uncorrected = 2 }, doctor.Warn, "2 errors of GPU 1 that were not corrected", "nvidia-smi -q -d ECC"},
		{"GPU ECC", func(g *doctor.GPUState) { g.Uncorrected, g.Reset = 2, true }, doctor.Warn, "GPU 1 waits for a reset", "--gpu-reset -i 1"},
		{"GPU ECC", func(g *doctor.GPUState) { g.Uncorrected, g.Reset, g.Worn = 2, true, true }, doctor.Fail, "GPU 1 has no spare memory", "replaced"},
		{"GPU mode", func(g *doctor.GPUState) { g.Compute = "Prohibited" }, doctor.Fail, "no program may use GPU 1", "-c DEFAULT"},
		{"GPU mode", func(g *doctor.GPUState) { g.Compute = "Exclusive_Process" }, doctor.Warn, "GPU 1 takes one process", "nvidia-cuda-mps-control"},
		{"MIG", func(g *doctor.GPUState) { g.MIG = "Enabled" }, doctor.Warn, "on for GPU 1, which has no parts", "nvidia-smi -i 1 -mig 0"},
		{"NVSwitch", func(g *doctor.GPUState) { g.Fabric = "In Progress" }, doctor.Warn, "GPU 1 has not joined", "nvidia-fabricmanager"},
		{"NVSwitch", func(g *doctor.GPUState) { g.Fabric = "Insufficient Resources" }, doctor.Warn, "GPU 1 has not joined", "nvidia-fabricmanager"},
	} {
		sick := well
		c.sicken(&sick)
		f := healthy()
		f.Host.GPUs = []topology.GPU{{Name: "A100"}, {Name: "A100"}}
		f.GPUStates = []doctor.GPUState{well, sick}
		got := finding(t, f, c.check)
		if got.Status != c.status || !strings.Contains(got.Text, c.text) || !strings.Contains(got.Fix, c.fix) {
			t.Errorf("%+v: %+v, want %s %q", sick, got, c.status, c.text)
		}
	}
	f := healthy()
	f.Host.GPUs = []topology.GPU{{Name: "A100", MIG: make([]topology.MIG, 3)}}
	f.GPUStates = []doctor.GPUState{{MIG: "Enabled"}}
	if got := finding(t, f, "MIG"); got.Status != doctor.Pass || got.Text != "3 parts" {
		t.Errorf("a GPU in parts: %+v", got)
	}
}

// TestPeers: what nvidia-smi reports comes before what CUDA does, since it has the reason.
func TestPeers(t *testing.T) {
	for _, c := range []struct {
		peers     doctor.Peers
		libraries *doctor.GPULibraries
		status    doctor.Status
		text      string
	}{
		{doctor.Peers{Pairs: 6}, &doctor.GPULibraries{Pairs: 12, Reached: 12}, doctor.Pass, "all GPUs reach each other's memory"},
		{doctor.Peers{Pairs: 6}, nil, doctor.Pass, "all GPUs reach each other's memory"},
		{doctor.Peers{Pairs: 6}, &doctor.GPULibraries{Pairs: 12}, doctor.Warn, "of 6 pairs of GPUs 6 cannot reach each other's memory"},
		{doctor.Peers{Pairs: 6}, &doctor.GPULibraries{Pairs: 12, Reached: 11}, doctor.Warn, "of 6 pairs of GPUs 1 cannot reach each other's memory"},
		{doctor.Peers{Pairs: 6, Refused: map[string]int{"CNS": 4}}, nil, doctor.Warn, "of 6 pairs of GPUs 4 cannot reach each other's memory: the chipset does not support it"},
		{doctor.Peers{}, &doctor.GPULibraries{Pairs: 12, Reached: 4}, doctor.Warn, "of 6 pairs of GPUs 4 cannot reach each other's memory"},
		{doctor.Peers{}, &doctor.GPULibraries{Pairs: 2, Reached: 2}, doctor.Pass, "all GPUs reach each other's memory"},
	} {
		f := healthy()
		f.GPUPeers, f.GPULibraries = c.peers, c.libraries
		if got := finding(t, f, "P2P"); got.Status != c.status || got.Text != c.text {
			t.Errorf("%+v %+v: %+v, want %s %q", c.peers, c.libraries, got, c.status, c.text)
		}
	}
}

func TestCompareNCCL(t *testing.T) {
	one, other := healthy(), healthy()
	other.Host.Name = "b"
	one.GPULibraries, other.GPULibraries = &doctor.GPULibraries{NCCL: "2.30.7"}, &doctor.GPULibraries{NCCL: "2.27.5"}
	for _, f := range doctor.Compare([]doctor.Answer{{Facts: one}, {Facts: other}}, nil) {
		if f.Check == "NCCL" {
			if f.Status != doctor.Warn || f.Text != "2.27.5, but a has 2.30.7: --gpu-path auto takes the host" {
				t.Errorf("got %+v", f)
			}
			return
		}
	}
	t.Error("no finding")
}
