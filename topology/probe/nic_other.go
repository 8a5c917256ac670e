//go:build !linux

package probe

import "gorun/topology"

func liveNICs(t tree, _ []Interface) []topology.NIC { return treeNICs(t) }
