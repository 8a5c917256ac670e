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

// identity identifies the machine and its installation, as hashes because /etc/machine-id is confidential.
//
// The installation is /etc/machine-id, which a clone keeps unless its administrator replaces it. The machine is the
// installation, the kernel's start, and the hardware address of the first card, by PCI address. A virtual machine that
// moves keeps them, even if it gets another card behind the first; a clone has another address. Without an installation
// id the firmware's UUID replaces it; it is only the second choice because only root may read it, and the result must not
// depend on the user. A container may have no card, and share its installation and addresses with other containers of its
// image. The kernel's start distinguishes those of several machines, and the namespaces of network and processes
// those of one.
func identity(t tree, nics []topology.NIC) (machine, system string) {
	id := t.text("etc/machine-id")
	if id != "" {
		system = digest("gorun system " + id)
	}
	start := t.text("proc/sys/kernel/random/boot_id")
	parts := []string{id}
	if id == "" {
		parts = []string{t.text("sys/class/dmi/id/product_uuid")}
	}
	for _, known := range []string{start, t.target("proc/self/ns/net"), t.target("proc/self/ns/pid")} {
		if known != "" {
			parts = append(parts, known)
		}
	}
	cards := slices.DeleteFunc(slices.Clone(nics), func(n topology.NIC) bool { return n.PCI == "" || n.MAC == "" || n.VF })
	if len(cards) > 0 {
		parts = append(parts, slices.MinFunc(cards, func(a, b topology.NIC) int {
			return cmp.Or(strings.Compare(a.PCI, b.PCI), strings.Compare(a.MAC, b.MAC))
		}).MAC)
	} else {
		if start == "" {
			return "", system
		}
		fixed := len(parts)
		for _, nic := range nics {
			parts = append(parts, nic.MAC)
		}
		slices.Sort(parts[fixed:])
	}
	return digest("gorun machine " + strings.Join(parts, " ")), system
}

// digest is enough of a hash to tell machines apart.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// hardware returns the version of VMware's virtual hardware, which follows the product's name.
func hardware(t tree) string {
	version, found := strings.CutPrefix(t.text("sys/class/dmi/id/product_name"), "VMware")
	version, _, _ = strings.Cut(version, ",")
	if !found || number(version) < 1 {
		return ""
	}
	return version
}

// Prepare reads in advance what cannot change while This is called again: the description of the board, and which CPUs
// share caches. Everything else may change at any time and is read by each call: CPUs and memory that the control group
// allows, addresses and speeds of interfaces, GPUs and their slices, labels. An unchanged Fingerprint could save
// reading the files of interfaces and nodes, but Fingerprint reads about as many.
func Prepare() {
	nodes("/")
	ownBoard()
}

// board is the description of the machine that does not change while it runs.
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

// nvswitches counts the NVSwitches among the PCI devices: bridges made by NVIDIA.
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
