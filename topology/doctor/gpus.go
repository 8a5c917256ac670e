package doctor

import (
	"fmt"
	"strings"
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

// gpus judges licences, and which path --gpu-path auto would take if each rank of the host has a GPU.
func (j *judge) gpus(f Facts) {
	for _, g := range f.Host.GPUs {
		if g.Licence != "" && !strings.HasPrefix(g.Licence, "Licensed") {
			j.add("GPU licence", Warn, fmt.Sprintf("%s is slow without one: %s", g.Name, g.Licence), "/etc/nvidia/gridd.conf; systemctl restart nvidia-gridd")
			break
		}
	}
	l := f.GPULibraries
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
		j.add("GPU path", Pass, fmt.Sprintf("nccl, with --gpu-path auto: CUDA %s, NCCL %s%s%s", l.Driver, l.NCCL, reach(l), sharing(l)), "")
	}
}

// sharing describes the path where several ranks have one GPU.
func sharing(l *GPULibraries) string {
	if l.Alone != "" {
		return "; host where ranks share a GPU: " + l.Alone
	}
	return "; ipc where ranks share a GPU"
}

func reach(l *GPULibraries) string {
	switch l.Reached {
	case l.Pairs:
		return ""
	case 0:
		return "; no GPU reaches another one's memory (P2P)"
	}
	return fmt.Sprintf("; of %d pairs of GPUs %d reach each other's memory (P2P)", l.Pairs/2, l.Reached/2)
}
