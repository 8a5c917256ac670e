package ranks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"gorun/topology"
	"gorun/worker/rankenv"
)

// chooseGPUs returns the devices of a host's slots, enough for so many ranks: what the user listed, or what is there.
// nil leaves GPUs to the program; most programs choose by LOCAL_RANK.
func chooseGPUs(list []string, host topology.Host, ranks int) ([]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if slices.Equal(list, []string{"auto"}) {
		list = topology.OrderGPUs(host.GPUs, devicesOf(host.GPUs))
	}
	if len(list) < ranks {
		return nil, fmt.Errorf("%s, but %s", topology.Count(ranks, "rank"), topology.Count(len(list), "GPU"))
	}
	return list, nil
}

// devicesOf returns what programs can use of GPUs: of one that is cut (MIG) its parts, as it cannot be used whole.
func devicesOf(gpus []topology.GPU) (devices []string) {
	for _, g := range gpus {
		for _, part := range g.MIG {
			devices = append(devices, part.UUID)
		}
		if len(g.MIG) == 0 {
			devices = append(devices, cmp.Or(g.UUID, strconv.Itoa(g.Index)))
		}
	}
	return devices
}

// deviceOf returns the device of a slot: its entry in gpus, or its number if gpus has none for it. Unless gpus is
// empty, the CUDA_VISIBLE_DEVICES that the user has set wins.
func deviceOf(env, gpus []string, slot int) string {
	if set, ok := rankenv.Lookup(env, "CUDA_VISIBLE_DEVICES"); ok && len(gpus) > 0 {
		return set
	}
	if slot < len(gpus) {
		return gpus[slot]
	}
	return strconv.Itoa(slot)
}
