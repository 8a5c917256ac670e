package probe

import (
	"path"
	"strings"
)

// Fingerprint returns a text that is another one when interfaces or devices of the machine came, went or changed: which
// there are, whether they are up, and their speed and MTU. It is cheap enough to be asked for every few seconds, runs no
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
	return b.String()
}
