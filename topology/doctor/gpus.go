package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gorun/topology"
)

// GPULibraries is what a host's Python finds of CUDA and NCCL; gorun/gpu/path.py collects it.
type GPULibraries struct {
	Lacks   string `json:"lacks"`   // why there is no driver or no NCCL
	Alone   string `json:"alone"`   // why processes cannot share memory of a GPU, which ranks of one GPU would do
	Driver  string `json:"driver"`  // the newest version of CUDA that the driver serves
	NCCL    string `json:"nccl"`    // its version
	Parts   bool   `json:"parts"`   // GPUs are cut into parts (MIG)
	Pairs   int    `json:"pairs"`   // of GPUs that are not the same, in each direction
	Reached int    `json:"reached"` // pairs of which one accesses the other's memory
}

// gpus judges a host's GPUs.
func (j *judge) gpus(f Facts) {
	switch {
	case f.GPUError != "":
		j.add("GPUs", Fail, f.GPUError, "nvidia-smi; dmesg | grep -i nvrm")
	case len(f.Host.GPUs) == 0:
		j.add("GPUs", Pass, "none", "")
	default:
		j.add("GPUs", Pass, fmt.Sprintf("%d × %s", len(f.Host.GPUs), f.Host.GPUs[0].Name), "")
	}
	for _, g := range f.Host.GPUs {
		if g.Licence != "" && !strings.HasPrefix(g.Licence, "Licensed") {
			j.add("GPU licence", Warn, fmt.Sprintf("%s is slow without one: %s", g.Name, g.Licence), "/etc/nvidia/gridd.conf; systemctl restart nvidia-gridd")
			break
		}
	}
	if len(f.GPUStates) > 0 {
		j.persistence(f.GPUStates)
		j.ecc(f.GPUStates)
		j.use(f.GPUStates)
		j.mig(f.GPUStates, f.Host.GPUs)
	}
	j.peers(f)
	j.path(f.GPULibraries)
}

// which names the GPUs with a property, "" if there are none. Their numbers are nvidia-smi's.
func which(gpus []GPUState, has func(GPUState) bool) string {
	var numbers []string
	for i, g := range gpus {
		if has(g) {
			numbers = append(numbers, fmt.Sprint(i))
		}
	}
	return strings.Join(numbers, ",")
}

func (j *judge) persistence(gpus []GPUState) {
	if off := which(gpus, func(g GPUState) bool { return g.Persistence == "Disabled" }); off != "" {
		j.add("GPU persistence", Warn, "off on GPU "+off+": the first program waits for seconds while the driver wakes it", "systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1")
	} else if gpus[0].Persistence != "" {
		j.add("GPU persistence", Pass, "on", "")
	}
}

// ecc judges the memory of GPUs, the worst first.
func (j *judge) ecc(gpus []GPUState) {
	uncorrected := 0
	for _, g := range gpus {
		uncorrected += g.Uncorrected
	}
	worn := which(gpus, func(g GPUState) bool { return g.Worn })
	reset := which(gpus, func(g GPUState) bool { return g.Reset })
	wrong := which(gpus, func(g GPUState) bool { return g.Uncorrected > 0 })
	next := which(gpus, func(g GPUState) bool { return g.ECC != g.ECCNext && g.ECCNext != "" })
	off := which(gpus, func(g GPUState) bool { return g.ECC == "Disabled" })
	switch {
	case worn != "":
		j.add("GPU ECC", Fail, "GPU "+worn+" has no spare memory left for what broke", "nvidia-smi -q -d ROW_REMAPPER; have it replaced")
	case reset != "":
		j.add("GPU ECC", Warn, "GPU "+reset+" waits for a reset, after which spare memory takes the place of broken one", "nvidia-smi --gpu-reset -i "+reset+", while no program uses it")
	case wrong != "":
		j.add("GPU ECC", Warn, fmt.Sprintf("%s of GPU %s that were not corrected, since the driver was loaded", topology.Count(uncorrected, "error"), wrong), "nvidia-smi -q -d ECC,ROW_REMAPPER; nvidia-smi --gpu-reset -i "+wrong)
	case next != "":
		j.add("GPU ECC", Warn, "to be switched on or off on GPU "+next+" by the next reset", "nvidia-smi --gpu-reset -i "+next+", or a reboot")
	case off != "":
		j.add("GPU ECC", Warn, "off on GPU "+off+": wrong bits go unnoticed", "nvidia-smi -i "+off+" -e 1, and a reboot")
	case gpus[0].ECC != "":
		j.add("GPU ECC", Pass, "on, and all errors were corrected", "")
	}
}

// use judges whether programs may use the GPUs: all of them, each and several on one.
func (j *judge) use(gpus []GPUState) {
	prohibited, alone := which(gpus, computes("Prohibited")), which(gpus, computes("Exclusive_Process"))
	switch {
	case prohibited != "":
		j.add("GPU mode", Fail, "no program may use GPU "+prohibited, "nvidia-smi -i "+prohibited+" -c DEFAULT")
	case alone != "":
		j.add("GPU mode", Warn, "GPU "+alone+" takes one process: ranks share it under MPS alone", "nvidia-smi -i "+alone+" -c DEFAULT, or nvidia-cuda-mps-control -d")
	}
	if lost := which(gpus, func(g GPUState) bool { return g.Fabric != "" && g.Fabric != "Completed" && g.Fabric != "Success" }); lost != "" {
		j.add("NVSwitch", Warn, "GPU "+lost+" has not joined its network: CUDA does not start", "systemctl enable --now nvidia-fabricmanager")
	}
}

func computes(mode string) func(GPUState) bool {
	return func(g GPUState) bool { return g.Compute == mode }
}

// mig judges whether GPUs in MIG mode are cut into parts: without parts no program can use them.
func (j *judge) mig(states []GPUState, gpus []topology.GPU) {
	parts := 0
	for _, g := range gpus {
		parts += len(g.MIG)
	}
	var whole []string
	for i, state := range states {
		if state.MIG == "Enabled" && i < len(gpus) && len(gpus[i].MIG) == 0 {
			whole = append(whole, fmt.Sprint(i))
		}
	}
	if numbers := strings.Join(whole, ","); numbers != "" {
		j.add("MIG", Warn, "on for GPU "+numbers+", which has no parts: no program can use it", "nvidia-smi mig -i "+numbers+" -cgi PROFILES -C, or nvidia-smi -i "+numbers+" -mig 0")
	} else if parts > 0 {
		j.add("MIG", Pass, topology.Count(parts, "part"), "")
	}
}

// refusals are the codes of nvidia-smi topo -p2p.
var refusals = map[string]string{"CNS": "the chipset does not support it", "GNS": "the GPUs do not support it", "TNS": "their places do not support it",
	"NS": "it is not supported", "DR": "a setting of the driver forbids it"}

// peers judges whether GPUs reach each other's memory (P2P), as CUDA finds it, and nvidia-smi, which knows why not.
func (j *judge) peers(f Facts) {
	pairs, refused, why := f.GPUPeers.Pairs, 0, ""
	hint := "nvidia-smi topo -p2p r"
	for _, code := range slices.Sorted(maps.Keys(f.GPUPeers.Refused)) {
		refused += f.GPUPeers.Refused[code]
		if text := refusals[code]; text != "" {
			why = ": " + text
		}
		if code == "CNS" || code == "TNS" {
			hint = "nvidia-smi topo -p2p r; on a machine of your own, switch ACS and the IOMMU off in its firmware"
		}
	}
	if l := f.GPULibraries; l != nil { // it counts each direction
		pairs, refused = max(pairs, l.Pairs/2), max(refused, (l.Pairs-l.Reached+1)/2)
	}
	if pairs > 0 {
		j.check("P2P", refused == 0, "all GPUs reach each other's memory", Warn,
			fmt.Sprintf("of %s of GPUs %d cannot reach each other's memory%s", topology.Count(pairs, "pair"), refused, why), hint)
	}
}

// path judges which path --gpu-path auto would take if each rank of the host has a GPU.
func (j *judge) path(l *GPULibraries) {
	if l == nil {
		return
	}
	switch {
	case l.Lacks != "" && l.Driver == "":
		j.add("GPU path", Warn, "host: "+l.Lacks, "nvidia-smi; ldconfig -p | grep libcuda")
	case l.Lacks != "":
		major, _, _ := strings.Cut(l.Driver, ".")
		j.add("GPU path", Pass, fmt.Sprintf("host: python3 has %s; pip install nvidia-nccl-cu%s brings it%s", l.Lacks, major, sharing(l)), "")
	case l.Parts:
		j.add("GPU path", Pass, fmt.Sprintf("host: GPUs are cut into parts (MIG); CUDA %s, NCCL %s", l.Driver, l.NCCL), "")
	default:
		j.add("GPU path", Pass, fmt.Sprintf("nccl, with --gpu-path auto: CUDA %s, NCCL %s%s", l.Driver, l.NCCL, sharing(l)), "")
	}
}

// sharing describes the path where several ranks have one GPU.
func sharing(l *GPULibraries) string {
	if l.Alone != "" {
		return "; host where ranks share a GPU: " + l.Alone
	}
	return "; ipc where ranks share a GPU"
}

// compareGPUs checks that NCCL is the same as on the first host: it serves no ranks of different versions.
func (j *judge) compareGPUs(first, f Facts) {
	one, other := first.GPULibraries, f.GPULibraries
	if one == nil || other == nil || one.NCCL == "" || other.NCCL == "" {
		return
	}
	j.check("NCCL", one.NCCL == other.NCCL, other.NCCL, Warn, fmt.Sprintf("%s, but %s has %s: --gpu-path auto takes the host", other.NCCL, first.Host.Name, one.NCCL),
		"install the same nvidia-nccl wheel on all hosts")
}
