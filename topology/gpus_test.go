package topology_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gorun/topology"
)

// TestOrderGPUs: GPUs are a, b, c, …; a row of letters is a group that NVLinks join.
func TestOrderGPUs(t *testing.T) {
	for _, tt := range []struct {
		about       string
		gpus        int
		linked      []string
		devices     string
		wantDevices string
	}{
		{"no NVLinks", 4, nil, "abcd", "abcd"},
		{"an NVSwitch", 4, []string{"abcd"}, "abcd", "abcd"},
		{"bridges between neighbours", 4, []string{"ab", "cd"}, "abcd", "abcd"},
		{"bridges across", 4, []string{"ac", "bd"}, "abcd", "acbd"},
		{"one bridge, not at the start", 4, []string{"bd"}, "abcd", "bdac"},
		{"groups of two sizes", 5, []string{"ad", "bce"}, "abcde", "bcead"},
		{"a chain, joined over others", 4, []string{"ac", "cd"}, "abcd", "acdb"},
		{"in another order than the driver's", 4, []string{"ac", "bd"}, "dcba", "acbd"},
		{"slices, which follow their GPU", 3, []string{"ac"}, "abxyc", "axycb"},
		{"a device that the probe did not see", 2, nil, "zab", "abz"},
	} {
		gpus := make([]topology.GPU, tt.gpus)
		for i := range gpus {
			name := letter(i)
			gpus[i] = topology.GPU{UUID: name, Links: make([]string, tt.gpus)}
			for j := range gpus {
				joined := slices.ContainsFunc(tt.linked, func(group string) bool {
					return strings.Contains(group, name) && strings.Contains(group, letter(j))
				})
				gpus[i].Links[j] = map[bool]string{true: "NV4", false: "NODE"}[joined]
			}
			gpus[i].Links[i] = "X"
		}
		gpus[0].MIG = []topology.MIG{{UUID: "x"}, {UUID: "y"}}
		got := strings.Join(topology.OrderGPUs(gpus, strings.Split(tt.devices, "")), "")
		if got != tt.wantDevices {
			t.Errorf("%s: %s, want %s", tt.about, got, tt.wantDevices)
		}
	}
}

func letter(i int) string { return fmt.Sprintf("%c", 'a'+i) }
