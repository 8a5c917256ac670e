package probe

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"

	"gorun/topology"
)

// identity names the machine and its installation. The machine is its installation and the hardware addresses of its
// cards: a virtual machine that moves keeps them all, a clone has new ones. The firmware's UUID stands in where there is no
// installation to name; only root may read it, and who asks must not matter. The installation is /etc/machine-id, which a clone keeps unless
// somebody sees to it. Both are hashes, because that file is not for others to know.
func identity(t tree, nics []topology.NIC) (machine, system string) {
	id := t.text("etc/machine-id")
	parts := []string{id}
	if id == "" {
		parts = []string{t.text("sys/class/dmi/id/product_uuid")}
	}
	for _, nic := range nics {
		if nic.PCI != "" && nic.MAC != "" && !nic.VF {
			parts = append(parts, nic.MAC)
		}
	}
	slices.Sort(parts[1:])
	if id != "" {
		system = digest("gorun system " + id)
	}
	if known := strings.Join(parts, ""); known != "" {
		machine = digest("gorun machine " + strings.Join(parts, " "))
	}
	return machine, system
}

// digest is enough of a hash to tell machines apart.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// hardware returns the version of VMware's virtual hardware, which the product's name has behind it.
func hardware(t tree) string {
	version, found := strings.CutPrefix(t.text("sys/class/dmi/id/product_name"), "VMware")
	version, _, _ = strings.Cut(version, ",")
	if !found || number(version) < 1 {
		return ""
	}
	return version
}

// nvswitches counts the NVSwitches among the PCI devices: bridges by NVIDIA.
func nvswitches(t tree) int {
	const dir = "sys/bus/pci/devices"
	n := 0
	for _, device := range t.names(dir) {
		if t.text(path.Join(dir, device, "vendor")) == "0x10de" && strings.HasPrefix(t.text(path.Join(dir, device, "class")), "0x0680") {
			n++
		}
	}
	return n
}
