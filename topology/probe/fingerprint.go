package probe

import (
	"fmt"
	"path"
	"strings"
)

// Fingerprint returns a text that changes when interfaces, devices, CPUs or memory of the machine come, go or change:
// which exist, whether interfaces are up, and their speed and MTU. It is cheap enough to call every few seconds, runs
// no program, and ignores addresses.
func Fingerprint(root string) string {
	t := tree(root)
	var b strings.Builder
	for _, name := range t.names(netDir) {
		if !carriesData(t, name) {
			continue
		}
		b.WriteString(name)
		for _, file := range []string{"operstate", "speed", "mtu"} {
			b.WriteString(" " + t.text(path.Join(netDir, name, file)))
		}
		b.WriteString("\n")
	}
	for _, device := range t.names("sys/bus/pci/devices") {
		b.WriteString(device + "\n")
	}
	// A driver may be loaded after its device appeared, and lists it only then.
	for _, device := range t.names("proc/driver/nvidia/gpus") {
		b.WriteString("NVIDIA " + device + "\n")
	}
	b.WriteString("CPUs " + t.text("sys/devices/system/cpu/online") + "\n")
	const nodes = "sys/devices/system/node"
	for _, name := range t.names(nodes) {
		if cpus := t.text(path.Join(nodes, name, "cpulist")); cpus != "" {
			b.WriteString(name + " " + cpus + "\n")
		}
	}
	// Hot-plugged memory comes in blocks of one size. A balloon does not count: it takes and returns pages all the time.
	fmt.Fprintf(&b, "memory %d\n", len(t.names("sys/devices/system/memory")))
	return b.String()
}
