package topology

import (
	"fmt"
	"slices"
	"strings"
)

// Duplicates reports hosts that are too similar, one line for each: one machine under two names, or clones that kept
// their source's machine id. Software derives addresses and names from that id, so such clones conflict.
func Duplicates(hosts []Host) []string {
	var lines []string
	seen := make([]bool, len(hosts))
	for i, h := range hosts {
		same, cloned := []string{hostName(hosts, i)}, []string{hostName(hosts, i)}
		for j := i + 1; j < len(hosts); j++ {
			switch {
			case seen[j]:
			case h.Identity != "" && hosts[j].Identity == h.Identity:
				same, seen[j] = append(same, hostName(hosts, j)), true
			case h.System != "" && hosts[j].System == h.System:
				cloned, seen[j] = append(cloned, hostName(hosts, j)), true
			}
		}
		if len(same) > 1 {
			lines = append(lines, fmt.Sprintf("%s are one machine", strings.Join(same, " and ")))
		}
		if len(cloned) > 1 {
			lines = append(lines, fmt.Sprintf("%s are clones with the same /etc/machine-id", strings.Join(cloned, " and ")))
		}
	}
	return slices.Compact(lines)
}
