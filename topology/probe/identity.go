package probe

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"
	"sync"

	"gorun/topology"
)

// identity names the machine and its installation. The machine is its installation and the hardware address of its first
// card, by PCI address: a virtual machine that moves keeps both, also when it gets another card behind that one, and a clone has
// a new one. The firmware's UUID stands in where there is no installation to name; only root may read it, and who asks must not
// matter. A container has no card, and its installation and addresses are those of others of its image elsewhere: it is told from
// them by the kernel's start, and is another machine after the next. The installation is /etc/machine-id, which a clone keeps
// unless somebody sees to it. Both are hashes, because that file is not for others to know.
func identity(t tree, nics []topology.NIC) (machine, system string) {
	id := t.text("etc/machine-id")
	if id != "" {
		system = digest("gorun system " + id)
	}
	parts := []string{id}
	if id == "" {
		parts = []string{t.text("sys/class/dmi/id/product_uuid")}
	}
	cards := slices.DeleteFunc(slices.Clone(nics), func(n topology.NIC) bool { return n.PCI == "" || n.MAC == "" || n.VF })
	if len(cards) > 0 {
		parts = append(parts, slices.MinFunc(cards, func(a, b topology.NIC) int {
			return cmp.Or(strings.Compare(a.PCI, b.PCI), strings.Compare(a.MAC, b.MAC))
		}).MAC)
	} else {
		start := t.text("proc/sys/kernel/random/boot_id")
		if start == "" {
			return "", system
		}
		parts = append(parts, start)
		for _, nic := range nics {
			parts = append(parts, nic.MAC)
		}
		slices.Sort(parts[2:])
	}
	return digest("gorun machine " + strings.Join(parts, " ")), system
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

// Prepare reads what This needs not read again: what the machine's board says, and which CPUs share what. All else may change at any
// time and is read whenever somebody asks: CPUs and memory that the control group allows, addresses and speeds of interfaces, GPUs
// and how they are divided, labels. That a machine looks the same by its Fingerprint would spare the files of its interfaces and
// nodes, of which Fingerprint reads about as many.
func Prepare() {
	nodes("/")
	ownBoard()
}

// board is what no machine changes while it runs.
type board struct {
	platform, hardware string
	processor          topology.Processor
}

var ownBoard = sync.OnceValue(func() board { return readBoard("/") })

func boardOf(t tree) board {
	if t == "/" {
		return ownBoard()
	}
	return readBoard(t)
}

func readBoard(t tree) board { return board{platform(t), hardware(t), processor(t)} }

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
