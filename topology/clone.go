package topology

import (
	"fmt"
	"slices"
	"strings"
)

// Doubles reports hosts that are not as different as they should be, one line for each: the same machine
// under two names, or machines that were cloned without being made new. A clone has its source's machine
// id, from which software derives addresses and names, so that the two get in each other's way.
func Doubles(hosts []Host) []string {
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
