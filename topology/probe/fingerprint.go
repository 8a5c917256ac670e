package probe

import (
	"fmt"
	"path"
	"strings"
)

// Fingerprint returns a text that is another one when interfaces, devices, CPUs or memory of the machine came, went or
// changed: which there are, whether interfaces are up, and their speed and MTU. It is cheap enough to be asked for every few seconds, runs no
// program, and says nothing of addresses.
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
	// A driver that is loaded later than its device came, and lists it only now.
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
	// What is plugged in are blocks of one size. A balloon is not: it takes and gives pages all the time.
	fmt.Fprintf(&b, "memory %d\n", len(t.names("sys/devices/system/memory")))
	return b.String()
}
