package probe

import (
	"bytes"
	"context"
	"encoding/csv"
	"os/exec"
	"path"
	"strings"
	"time"

	"gorun/topology"
)

// nvidiaPatience is how long nvidia-smi may take: seconds when it has to wake the GPUs, for ever when
// their driver is stuck.
const nvidiaPatience = 5 * time.Second

// askNvidia returns the GPUs in the order of nvidia-smi, nil if there is none to ask.
func askNvidia(ctx context.Context, t tree) []topology.GPU {
	if !t.has("proc/driver/nvidia/gpus") && !t.has("dev/nvidiactl") {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, nvidiaPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=index,uuid,name,pci.bus_id", "--format=csv,noheader")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	return parseNvidia(t, out)
}

func parseNvidia(t tree, out []byte) []topology.GPU {
	r := csv.NewReader(bytes.NewReader(out))
	r.TrimLeadingSpace = true
	r.FieldsPerRecord = 4
	records, err := r.ReadAll()
	if err != nil {
		return nil
	}
	var gpus []topology.GPU
	for _, f := range records {
		gpu := topology.GPU{Index: number(f[0]), UUID: f[1], Name: f[2], PCI: shortDomain(f[3])}
		_, gpu.Node = t.pci(path.Join("sys/bus/pci/devices", gpu.PCI))
		gpus = append(gpus, gpu)
	}
	return gpus
}

// shortDomain turns "00000000:3B:00.0" into the kernel's "0000:3b:00.0".
func shortDomain(pci string) string {
	pci = strings.ToLower(pci)
	if domain, rest, ok := strings.Cut(pci, ":"); ok && len(domain) == 8 && strings.HasPrefix(domain, "0000") {
		return domain[4:] + ":" + rest
	}
	return pci
}

// driverGPUs returns the GPUs that the NVIDIA driver lists in /proc. Their order there, by PCI address,
// is that of nvidia-smi.
func driverGPUs(t tree) []topology.GPU {
	const dir = "proc/driver/nvidia/gpus"
	gpus := []topology.GPU{}
	for i, pci := range t.names(dir) {
		info := t.text(path.Join(dir, pci, "information"))
		gpu := topology.GPU{Index: i, UUID: field(info, "GPU UUID"), Name: field(info, "Model"), PCI: pci}
		_, gpu.Node = t.pci(path.Join("sys/bus/pci/devices", pci))
		gpus = append(gpus, gpu)
	}
	return gpus
}
