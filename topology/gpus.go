package topology

import (
	"cmp"
	"slices"
	"strings"
)

// OrderGPUs returns devices, UUIDs of GPUs or of their MIG slices, in the order in which ranks take them. GPUs that
// NVLinks join come one after another, the largest group first, so that NVLinks join neighbouring ranks, also on a host
// that has more GPUs than ranks. Apart from that the order stays; nothing changes if NVLinks join all GPUs, or none.
func OrderGPUs(gpus []GPU, devices []string) []string {
	groups := nvlinkGroups(gpus)
	slices.SortStableFunc(groups, func(a, b []int) int { return len(b) - len(a) })
	place := map[string]int{}
	for at, member := range slices.Concat(groups...) {
		place[gpus[member].UUID] = at
		for _, slice := range gpus[member].MIG {
			place[slice.UUID] = at
		}
	}
	placeOf := func(device string) int {
		if at, known := place[device]; known {
			return at
		}
		return len(gpus)
	}
	ordered := slices.Clone(devices)
	slices.SortStableFunc(ordered, func(a, b string) int { return cmp.Compare(placeOf(a), placeOf(b)) })
	return ordered
}

// nvlinkGroups returns the groups of GPUs that NVLinks join, directly or over other GPUs, as indices into the list. A
// GPU without NVLinks is a group of its own.
func nvlinkGroups(gpus []GPU) [][]int {
	var groups [][]int
	seen := make([]bool, len(gpus))
	for first := range gpus {
		if seen[first] {
			continue
		}
		seen[first] = true
		group := []int{first}
		for next := 0; next < len(group); next++ {
			for other, link := range gpus[group[next]].Links {
				if strings.HasPrefix(link, "NV") && other < len(gpus) && !seen[other] {
					seen[other] = true
					group = append(group, other)
				}
			}
		}
		slices.Sort(group)
		groups = append(groups, group)
	}
	return groups
}
