package probe

import (
	"context"
	"path"

	"gorun/topology"
)

// gpus returns the GPUs in the order of nvidia-smi, as it describes them, or else the GPUs that the
// NVIDIA driver lists in /proc. Their order there, by PCI address, is the same.
func gpus(ctx context.Context, t tree, run runner) []topology.GPU {
	var found []topology.GPU
	if run != nil && (t.has("proc/driver/nvidia/gpus") || t.has("dev/nvidiactl") || t.has("dev/dxg")) {
		found = askNvidia(ctx, run)
	}
	if found == nil {
		found = driverGPUs(t)
	}
	for i := range found {
		where := t.pci(path.Join("sys/bus/pci/devices", found[i].PCI))
		found[i].Path, found[i].Node = where.path, where.node
	}
	for i := range found {
		if found[i].Links != nil {
			continue
		}
		for j := range found {
			found[i].Links = append(found[i].Links, between(found[i], found[j], i == j))
		}
	}
	return found
}

// driverGPUs returns the GPUs that the NVIDIA driver lists in /proc.
func driverGPUs(t tree) []topology.GPU {
	const dir = "proc/driver/nvidia/gpus"
	gpus := []topology.GPU{}
	for i, pci := range t.names(dir) {
		info := t.text(path.Join(dir, pci, "information"))
		gpus = append(gpus, topology.GPU{Index: i, UUID: field(info, "GPU UUID"), Name: field(info, "Model"), PCI: pci,
			MemBytes: -1, Profile: vgpuProfile(field(info, "Model"))})
	}
	return gpus
}

// between describes how two GPUs reach each other by PCI, in nvidia-smi's words. If the node of one is unknown
// it returns "" rather than SYS, because virtual machines hide nodes.
func between(a, b topology.GPU, same bool) string {
	if same {
		return "X"
	}
	if len(a.Path) == 0 || len(b.Path) == 0 {
		return ""
	}
	shared := 0
	for shared < min(len(a.Path), len(b.Path)) && a.Path[shared] == b.Path[shared] {
		shared++
	}
	switch apart := len(a.Path) + len(b.Path) - 2*shared; {
	case shared == 1:
		return "PHB"
	case shared > 1 && apart <= 2:
		return "PIX"
	case shared > 1:
		return "PXB"
	case a.Node < 0 || b.Node < 0:
		return ""
	case a.Node == b.Node:
		return "NODE"
	}
	return "SYS"
}
