package probe

import (
	"reflect"
	"testing"

	"gorun/topology"
)

func TestParseNvidia(t *testing.T) {
	for name, c := range map[string]struct {
		out  string
		want []topology.GPU
	}{
		"two": {"0, GPU-1, NVIDIA H200, 00000000:3B:00.0\n1, GPU-2, GRID A100-40C, 00010000:02:00.0\n", []topology.GPU{
			{Index: 0, UUID: "GPU-1", Name: "NVIDIA H200", PCI: "0000:3b:00.0", Node: -1},
			{Index: 1, UUID: "GPU-2", Name: "GRID A100-40C", PCI: "00010000:02:00.0", Node: -1}}},
		"an error": {"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", nil},
		"nothing":  {"", nil},
	} {
		if got := parseNvidia(tree(t.TempDir()), []byte(c.out)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, should be %+v", name, got, c.want)
		}
	}
}
