package ranks

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// acceleratorDevices are the device files that the drivers of GPUs and their like make, for the makers that
// accelerate knows: NVIDIA (dxg in WSL), AMD, Habana and TPUs, Ascend, Cambricon, Moore Threads, Tecorigin, Neuron.
var acceleratorDevices = []string{"nvidia*", "dxg", "kfd", "hl[0-9]*", "accel*", "davinci*", "cambricon*", "mtgpu*",
	"tcaicard*", "neuron*"}

// hasAccelerator reports whether the host whose files are below root has a device beside its CPUs that torch could
// compute on. A render node counts if it is Intel's: many VMs have one of a virtual graphics card, which cannot
// compute.
func hasAccelerator(root fs.FS) bool {
	devices, _ := fs.ReadDir(root, "dev")
	if slices.ContainsFunc(devices, func(d fs.DirEntry) bool {
		return slices.ContainsFunc(acceleratorDevices, func(pattern string) bool {
			matched, _ := path.Match(pattern, d.Name())
			return matched
		})
	}) {
		return true
	}
	cards, _ := fs.Glob(root, "sys/class/drm/renderD*")
	return slices.ContainsFunc(cards, func(card string) bool {
		vendor, _ := fs.ReadFile(root, card+"/device/vendor")
		return strings.TrimSpace(string(vendor)) == "0x8086"
	})
}
